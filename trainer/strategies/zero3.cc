// ZeRO stage 3: a rank keeps its own shard of everything. A unit's parameters are gathered before
// they are used, in forward and again in backward, and forgotten behind it.
//
//   forward, backward: w = all-gather(w_shard)     g_shard = g_shard + reduce-scatter(g_r)
//   w_shard = update(w_shard, g_shard)
//   sent on each rank and batch: 3 (N-1)/N S; held, with Adam in float32: (4 + 4 + 8)/N bytes for
//   each parameter, and one unit
//
// Rajbhandari et al.: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.
//
// This is the plain form, where a rank waits for each call. fsdp.cc gathers ahead.
#include "trainer/strategies/shards.h"

namespace tutti::trainer {
namespace {

class Zero3 : public Strategy {
 public:
  explicit Zero3(const Setup& setup)
      : Strategy(setup), shards_(units(), traffic().me(), traffic().ranks()) {}

  Status begin(std::span<const float> weights) override {
    TUTTI_TRY(weights_, make(Holds::kParameters, shards_.total()));
    TUTTI_TRY(gradients_, make(Holds::kGradients, shards_.total()));
    TUTTI_TRY(unit_, make(Holds::kTransient, shards_.largest()));
    TUTTI_TRY(gradient_, make(Holds::kTransient, shards_.largest()));
    TUTTI_TRY(reduced_, make(Holds::kTransient, shards_.largest() / traffic().ranks()));
    for (std::size_t u = 0; u < units().size(); ++u) {
      const auto [begin, size] = shards_.own(u);
      std::copy_n(weights.data() + units()[u].offset + begin, size, shard(weights_, u));
    }
    TUTTI_TRY(updater_,
              Updater::make(options().optimiser, setup_.ledger,
                            shards_.runs([&](std::size_t u) { return shard(weights_, u); },
                                         [&](std::size_t u) { return shard(gradients_, u); }),
                            units().size()));
    return ok();
  }

  Result<const float*> parameters(std::size_t unit) override {
    TUTTI_RETURN_IF_ERROR(
        traffic().call(shards_.all_gather(unit, shard(weights_, unit), unit_.data())));
    return unit_.data();
  }
  Result<Target> gradient(std::size_t unit) override {
    const std::size_t size = units()[unit].size;
    std::fill(gradient_.data() + size, gradient_.data() + shards_.padded(unit), 0.0F);
    return Target{gradient_.data(), false};
  }
  Status ready(std::size_t unit) override {
    TUTTI_RETURN_IF_ERROR(
        traffic().call(shards_.reduce_scatter(unit, gradient_.data(), reduced_.data())));
    float* into = shard(gradients_, unit);
    for (std::size_t i = 0; i < shards_.shard_of(unit); ++i)
      into[i] = first_batch_ ? reduced_.data()[i] : into[i] + reduced_.data()[i];
    return ok();
  }
  Status step(const StepInfo& info) override {
    return updater_.update({info.number, info.rate, 1.0 / static_cast<double>(info.labels)},
                           sum_over(traffic()));
  }
  std::vector<Piece> pieces() override { return updater_.pieces(Held::kInParts); }

 private:
  float* shard(Floats& values, std::size_t unit) { return values.data() + shards_.offset(unit); }

  Shards shards_;
  Floats weights_, gradients_;        // Shards.
  Floats unit_, gradient_, reduced_;  // One unit's, for a while.
  Updater updater_;
};

}  // namespace

std::unique_ptr<Strategy> make_zero3(const Setup& setup) { return std::make_unique<Zero3>(setup); }

}  // namespace tutti::trainer
