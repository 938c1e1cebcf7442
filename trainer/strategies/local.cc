// Local SGD: ranks take H steps on their own, and then average. Local momentum stays local.
//
//   for H steps: w_r = update(w_r, g_r)         then  w_r = w = 1/N sum of w_r
//
// post-local SGD averages after every step at first, when weights still change fast. DiLoCo takes
// the average's way from the last one as a gradient of an outer optimiser with Nesterov momentum:
//
//   d = w - 1/N sum of w_r       v = mu v + d       w_r = w = w - eta (d + mu v)
//   sent on each rank: 2 (N-1)/N S every H steps
//
// Stich: Local SGD Converges Fast and Communicates Little, 2019. Lin et al.: Don't Use Large
// Mini-Batches, Use Local SGD, 2020. Douillard et al.: DiLoCo, 2023.
#include "trainer/strategies/replica.h"

namespace tutti::trainer {
namespace {

class Local : public Replica {
 public:
  using Replica::Replica;

  Status begin(std::span<const float> weights) override {
    TUTTI_RETURN_IF_ERROR(Replica::begin(weights));
    TUTTI_TRY(average_, make(Holds::kTransient, size()));
    if (!outer()) return ok();
    TUTTI_TRY(last_, make(Holds::kOptimiser, size()));
    TUTTI_TRY(velocity_, make(Holds::kOptimiser, size()));
    std::copy(weights.begin(), weights.end(), last_.data());
    return ok();
  }

  Status ready(std::size_t /*unit*/) override { return ok(); }

  Status step(const StepInfo& info) override {
    TUTTI_RETURN_IF_ERROR(update(info.number, info.rate, info.own_labels));
    const auto early = static_cast<std::uint64_t>(options().post_local_steps);
    const auto each = static_cast<std::uint64_t>(options().local_steps);
    if (info.number > early && (info.number - early) % each != 0) return ok();
    TUTTI_RETURN_IF_ERROR(average());
    for (std::size_t i = 0; i < size(); ++i)
      weights()[i] = outer() ? advance(i) : average_.data()[i];
    return ok();
  }

  /// The model is the average of the ranks' weights as they are.
  Status begin_evaluation() override {
    TUTTI_RETURN_IF_ERROR(average());
    evaluates_ = true;
    return ok();
  }
  Status end_evaluation() override {
    evaluates_ = false;
    return ok();
  }
  Result<const float*> parameters(std::size_t unit) override {
    return (evaluates_ ? average_.data() : weights()) + units()[unit].offset;
  }
  std::vector<Piece> pieces() override {
    std::vector<Piece> pieces = pieces_by_rank();
    if (!outer()) return pieces;
    pieces.push_back({"outer weights", 0, last_.span(), Held::kEverywhere});
    pieces.push_back({"outer velocity", 0, velocity_.span(), Held::kEverywhere});
    return pieces;
  }

 private:
  bool outer() const { return options().outer_momentum > 0 || options().outer_rate != 1; }

  Status average() {
    std::copy_n(weights(), size(), average_.data());
    return traffic().all_reduce(average_.data(), size(), DataType::kFloat32, ReduceOp::kAvg);
  }
  /// The outer step of one weight.
  float advance(std::size_t i) {
    const auto mu = static_cast<float>(options().outer_momentum);
    const float way = last_.data()[i] - average_.data()[i];
    float& velocity = velocity_.data()[i];
    velocity = mu * velocity + way;
    return last_.data()[i] -= static_cast<float>(options().outer_rate) * (way + mu * velocity);
  }

  Floats average_, last_, velocity_;
  bool evaluates_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_local(const Setup& setup) { return std::make_unique<Local>(setup); }

}  // namespace tutti::trainer
