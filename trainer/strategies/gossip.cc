// Stochastic gradient push: no rank waits for all others. Each takes a step on its own, gives half
// of what it has to one other rank, and takes half of what a third one has. Push-sum weights keep
// the average right: a rank has x and p, and its model is z = x / p.
//
//   x_r = x_r - eta step(g_r at z_r)
//   x_r = 1/2 x_r + 1/2 x_q        p_r = 1/2 p_r + 1/2 p_q        z_r = x_r / p_r
//   sent on each rank and step: S, to rank r + 2^k, where k grows by one in each step
//
// Assran et al.: Stochastic Gradient Push for Distributed Deep Learning, 2019.
//
// The exponential graph reaches all N ranks in log2 N steps. In it each rank receives from one
// other in each step, so p stays 1; in graphs where some receive more than they give, it does not.
#include <bit>

#include "trainer/strategies/replica.h"

namespace tutti::trainer {
namespace {

class Gossip : public Replica {
 public:
  using Replica::Replica;

  Status begin(std::span<const float> weights) override {
    TUTTI_RETURN_IF_ERROR(Replica::begin(weights));
    TUTTI_TRY(out_, make(Holds::kTransient, size() + 1));
    TUTTI_TRY(in_, make(Holds::kTransient, size() + 1));
    return ok();
  }

  Status ready(std::size_t /*unit*/) override { return ok(); }

  Status step(const StepInfo& info) override {
    // Replica's weights are z. An update of z by p times less is one of x = p z.
    TUTTI_RETURN_IF_ERROR(update(info.number, info.rate, info.own_labels));
    const std::size_t ranks = traffic().ranks(), me = traffic().me();
    if (ranks == 1) return ok();
    const std::size_t distance = distance_in(info.number);
    for (std::size_t i = 0; i < size(); ++i) out_.data()[i] = weights()[i] * push_ / 2;
    out_.data()[size()] = push_ / 2;
    const Message out{out_.data(), size() + 1, (me + distance) % ranks};
    const Message in{in_.data(), size() + 1, (me + ranks - distance) % ranks};
    TUTTI_RETURN_IF_ERROR(traffic().exchange({&out, 1}, {&in, 1}));
    push_ = out_.data()[size()] + in_.data()[size()];
    for (std::size_t i = 0; i < size(); ++i)
      weights()[i] = (out_.data()[i] + in_.data()[i]) / push_;
    return ok();
  }

  /// The model is the average of all x: their sum over the sum of all p, which is the ranks.
  Status begin_evaluation() override {
    for (std::size_t i = 0; i < size(); ++i) out_.data()[i] = weights()[i] * push_;
    evaluates_ = true;
    return traffic().all_reduce(out_.data(), size(), DataType::kFloat32, ReduceOp::kAvg);
  }
  Status end_evaluation() override {
    evaluates_ = false;
    return ok();
  }
  Result<const float*> parameters(std::size_t unit) override {
    return (evaluates_ ? out_.data() : weights()) + units()[unit].offset;
  }
  std::vector<Piece> pieces() override {
    std::vector<Piece> pieces = pieces_by_rank();
    pieces.push_back({"push", 0, {&push_, 1}, Held::kByRank});
    return pieces;
  }

 private:
  /// 1, 2, 4, ... below the ranks, and again from 1.
  std::size_t distance_in(std::uint64_t step) const {
    const auto distances = static_cast<std::uint64_t>(std::bit_width(traffic().ranks() - 1));
    return std::size_t{1} << (step - 1) % distances;
  }

  Floats out_, in_;  // Half of x, and half of p.
  float push_ = 1;   // p
  bool evaluates_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_gossip(const Setup& setup) {
  return std::make_unique<Gossip>(setup);
}

}  // namespace tutti::trainer
