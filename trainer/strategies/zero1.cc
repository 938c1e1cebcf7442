// ZeRO stage 1: every rank has all parameters and gradients, but the optimiser's values of its own
// shard only. It updates that shard, and an all-gather hands out the new weights.
//
//   g_shard = reduce-scatter(g_r)      w_shard = update(w_shard, g_shard)
//   w = all-gather(w_shard)
//   sent on each rank and step: 2 (N-1)/N S, as much as ddp: an all-reduce is these two halves
//   held, with Adam in float32: (4 + 4 + 8/N) bytes for each parameter
//
// Rajbhandari et al.: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.
#include "trainer/strategies/shards.h"

namespace tutti::trainer {
namespace {

class Zero1 : public Strategy {
 public:
  explicit Zero1(const Setup& setup)
      : Strategy(setup), shards_(units(), traffic().me(), traffic().ranks()) {}

  Status begin(std::span<const float> weights) override {
    TUTTI_TRY(weights_, make(Holds::kParameters, shards_.padded_total()));
    TUTTI_TRY(gradients_, make(Holds::kGradients, shards_.padded_total()));
    for (std::size_t u = 0; u < units().size(); ++u)
      std::copy_n(weights.data() + units()[u].offset, units()[u].size, whole(weights_, u));
    TUTTI_TRY(updater_,
              Updater::make(options().optimiser, setup_.ledger,
                            shards_.runs([&](std::size_t u) { return shard(weights_, u); },
                                         [&](std::size_t u) { return shard(gradients_, u); }),
                            units().size()));
    return ok();
  }

  Result<const float*> parameters(std::size_t unit) override { return whole(weights_, unit); }
  Result<Target> gradient(std::size_t unit) override {
    return Target{whole(gradients_, unit), !first_batch_};
  }
  Status ready(std::size_t unit) override {
    if (!last_batch_) return ok();
    reductions_.emplace_back();
    TUTTI_TRY(reductions_.back(), traffic().start(shards_.reduce_scatter(
                                      unit, whole(gradients_, unit), shard(gradients_, unit))));
    return ok();
  }

  Status step(const StepInfo& info) override {
    for (Pending& reduction : reductions_) TUTTI_RETURN_IF_ERROR(traffic().wait(reduction));
    reductions_.clear();
    TUTTI_RETURN_IF_ERROR(updater_.update(
        {info.number, info.rate, 1.0 / static_cast<double>(info.labels)}, sum_over(traffic())));
    return gather();
  }

  std::vector<Piece> pieces() override { return updater_.pieces(Held::kInParts); }
  Status restored() override { return gather(); }

 private:
  float* whole(Floats& values, std::size_t unit) {
    return values.data() + shards_.padded_offset(unit);
  }
  float* shard(Floats& values, std::size_t unit) {
    return whole(values, unit) + traffic().me() * shards_.shard_of(unit);
  }
  Status gather() {
    for (std::size_t u = 0; u < units().size(); ++u) {
      TUTTI_RETURN_IF_ERROR(
          traffic().call(shards_.all_gather(u, shard(weights_, u), whole(weights_, u))));
    }
    return ok();
  }

  Shards shards_;
  Floats weights_, gradients_;  // Padded units.
  Updater updater_;
  std::vector<Pending> reductions_;
};

}  // namespace

std::unique_ptr<Strategy> make_zero1(const Setup& setup) { return std::make_unique<Zero1>(setup); }

}  // namespace tutti::trainer
