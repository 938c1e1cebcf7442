// ZeRO stage 2: like stage 1, and of the gradients too a rank keeps its own shard only. A unit's
// gradient is whole only until it is reduced, which is after each batch.
//
//   g_shard = g_shard + reduce-scatter(g_r)    w_shard = update(w_shard, g_shard)
//   w = all-gather(w_shard)
//   sent on each rank and step: 2 (N-1)/N S, and (N-1)/N S more for each further batch of a step
//   held, with Adam in float32: (4 + 4/N + 8/N) bytes for each parameter
//
// Rajbhandari et al.: ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020.
//
// Two units are on their way at most: while one is reduced, backward computes the next.
#include <array>

#include "trainer/strategies/shards.h"

namespace tutti::trainer {
namespace {

class Zero2 : public Strategy {
 public:
  explicit Zero2(const Setup& setup)
      : Strategy(setup), shards_(units(), traffic().me(), traffic().ranks()) {}

  Status begin(std::span<const float> weights) override {
    TUTTI_TRY(weights_, make(Holds::kParameters, shards_.padded_total()));
    TUTTI_TRY(gradients_, make(Holds::kGradients, shards_.total()));
    for (Flight& flight : flights_) {
      TUTTI_TRY(flight.whole, make(Holds::kTransient, shards_.largest()));
      TUTTI_TRY(flight.shard, make(Holds::kTransient, shards_.largest() / traffic().ranks()));
    }
    for (std::size_t u = 0; u < units().size(); ++u)
      std::copy_n(weights.data() + units()[u].offset, units()[u].size, whole(u));
    const auto gradient = [&](std::size_t u) { return gradients_.data() + shards_.offset(u); };
    TUTTI_TRY(updater_,
              Updater::make(options().optimiser, setup_.ledger,
                            shards_.runs([&](std::size_t u) { return shard(u); }, gradient),
                            units().size()));
    return ok();
  }

  Result<const float*> parameters(std::size_t unit) override { return whole(unit); }
  Result<Target> gradient(std::size_t unit) override {
    Flight& flight = flights_[unit % flights_.size()];
    TUTTI_RETURN_IF_ERROR(land(flight));
    const std::size_t size = units()[unit].size;
    std::fill(flight.whole.data() + size, flight.whole.data() + shards_.padded(unit), 0.0F);
    return Target{flight.whole.data(), false};
  }
  Status ready(std::size_t unit) override {
    Flight& flight = flights_[unit % flights_.size()];
    flight.unit = unit;
    flight.add = !first_batch_;
    TUTTI_TRY(flight.pending, traffic().start(shards_.reduce_scatter(unit, flight.whole.data(),
                                                                     flight.shard.data())));
    return ok();
  }

  Status step(const StepInfo& info) override {
    for (Flight& flight : flights_) TUTTI_RETURN_IF_ERROR(land(flight));
    TUTTI_RETURN_IF_ERROR(updater_.update(
        {info.number, info.rate, 1.0 / static_cast<double>(info.labels)}, sum_over(traffic())));
    return gather();
  }

  std::vector<Piece> pieces() override { return updater_.pieces(Held::kInParts); }
  Status restored() override { return gather(); }

 private:
  /// A gradient that is being reduced.
  struct Flight {
    Floats whole, shard;
    std::size_t unit = 0;
    bool add = false;
    Pending pending;
  };

  /// Waits for a reduction, and adds this rank's shard to what it keeps.
  Status land(Flight& flight) {
    if (!flight.pending.started()) return ok();
    TUTTI_RETURN_IF_ERROR(traffic().wait(flight.pending));
    float* into = gradients_.data() + shards_.offset(flight.unit);
    for (std::size_t i = 0; i < shards_.shard_of(flight.unit); ++i)
      into[i] = flight.add ? into[i] + flight.shard.data()[i] : flight.shard.data()[i];
    return ok();
  }
  float* whole(std::size_t unit) { return weights_.data() + shards_.padded_offset(unit); }
  float* shard(std::size_t unit) { return whole(unit) + traffic().me() * shards_.shard_of(unit); }
  Status gather() {
    for (std::size_t u = 0; u < units().size(); ++u)
      TUTTI_RETURN_IF_ERROR(traffic().call(shards_.all_gather(u, shard(u), whole(u))));
    return ok();
  }

  Shards shards_;
  Floats weights_, gradients_;  // Padded units; shards.
  std::array<Flight, 2> flights_;
  Updater updater_;
};

}  // namespace

std::unique_ptr<Strategy> make_zero2(const Setup& setup) { return std::make_unique<Zero2>(setup); }

}  // namespace tutti::trainer
