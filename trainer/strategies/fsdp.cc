// Fully sharded data parallel: ZeRO-3 that hides its communication. While a unit is computed, the
// next one is gathered, and the gradient of the one before is reduced.
//
//   forward, backward: w = all-gather(w_shard)     g_shard = g_shard + reduce-scatter(g_r)
//   sent on each rank and batch: 3 (N-1)/N S; 2 (N-1)/N S if units stay gathered from forward to
//   backward (`reshard` off); half of that in bfloat16
//   held, in float32 with Adam: 16/N bytes for each parameter. In bfloat16 too: float32 masters and
//   moments 12/N, gradients in float32 4/N, and units that are gathered for a while
//
// Zhao et al.: PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, 2023. Mixed
// precision and the scale of the loss: Micikevicius et al.: Mixed Precision Training, 2018.
//
// With bfloat16, parameters and gradients travel in 16 bits; sums and weights of the optimiser have
// float32, and the loss is scaled (mixed_precision.h).
#include "trainer/strategies/mixed_precision.h"
#include "trainer/strategies/shards.h"

namespace tutti::trainer {
namespace {

class Fsdp : public Strategy {
 public:
  explicit Fsdp(const Setup& setup)
      : Strategy(setup),
        shards_(units(), traffic().me(), traffic().ranks()),
        bf16_(options().precision == DataType::kBfloat16) {}

  Status begin(std::span<const float> weights) override {
    TUTTI_TRY(weights_, make(Holds::kParameters, shards_.total()));
    TUTTI_TRY(gradients_, make(Holds::kGradients, shards_.total()));
    gathered_.resize(units().size());
    for (std::size_t u = 0; u < units().size(); ++u) {
      const auto [begin, size] = shards_.own(u);
      std::copy_n(weights.data() + units()[u].offset + begin, size, shard(weights_, u));
    }
    const auto gradient = [&](std::size_t u) { return shard(gradients_, u); };
    TUTTI_TRY(
        updater_,
        Updater::make(options().optimiser, setup_.ledger,
                      shards_.runs([&](std::size_t u) { return shard(weights_, u); }, gradient),
                      units().size()));
    return ok();
  }

  Status begin_batch(bool first, bool last) override {
    backward_ = visited_last_ = false;
    return Strategy::begin_batch(first, last);
  }
  float loss_scale() const override { return bf16_ ? loss_scale_.scale() : 1; }

  Result<const float*> parameters(std::size_t unit) override {
    if (unit + 1 == units().size() && visited_last_) backward_ = true;
    visited_last_ = unit + 1 == units().size() && !visited_last_ && !evaluates_;
    TUTTI_RETURN_IF_ERROR(gather(unit));
    // The next one is on its way while this one is computed.
    if (!backward_ && unit + 1 < units().size()) TUTTI_RETURN_IF_ERROR(gather(unit + 1));
    if (backward_ && unit > 0) TUTTI_RETURN_IF_ERROR(gather(unit - 1));
    TUTTI_RETURN_IF_ERROR(arrive(unit));
    return gathered_[unit].values.data();
  }
  Status release(std::size_t unit) override {
    // Backward begins with the last unit, so that one stays in any case.
    const bool last = unit + 1 == units().size();
    if (backward_ || evaluates_ || (options().reshard && !last)) gathered_[unit] = {};
    return ok();
  }

  Result<Target> gradient(std::size_t unit) override {
    TUTTI_TRY(gradient_, make(Holds::kTransient, shards_.padded(unit)));
    return Target{gradient_.data(), false};
  }
  Status ready(std::size_t unit) override {
    TUTTI_RETURN_IF_ERROR(land());  // The gradient of the unit before.
    flight_.unit = unit;
    flight_.add = !first_batch_;
    TUTTI_TRY(flight_.reduced, make(Holds::kTransient, shards_.shard_of(unit)));
    Request reduce = shards_.reduce_scatter(unit, gradient_.data(), flight_.reduced.data());
    if (bf16_) {
      TUTTI_TRY(flight_.half, halves(gradient_.span()));
      TUTTI_TRY(flight_.half_reduced,
                Buffer<Half>::make(setup_.ledger, Holds::kTransient, shards_.shard_of(unit)));
      reduce.input = flight_.half.data();
      reduce.output = flight_.half_reduced.data();
      reduce.type = DataType::kBfloat16;
    }
    flight_.whole = std::move(gradient_);
    TUTTI_TRY(flight_.pending, traffic().start(reduce));
    return ok();
  }

  Status step(const StepInfo& info) override {
    TUTTI_RETURN_IF_ERROR(land());
    backward_ = false;
    double scale = 1.0 / static_cast<double>(info.labels);
    if (bf16_) {
      scale /= loss_scale_.scale();
      TUTTI_TRY(const bool overflows, loss_scale_.next(traffic(), gradients_.span()));
      if (overflows) return ok();
    }
    return updater_.update({info.number, info.rate, scale}, sum_over(traffic()));
  }

  Status begin_evaluation() override {
    evaluates_ = true;
    backward_ = false;
    return ok();
  }
  Status end_evaluation() override {
    evaluates_ = false;
    visited_last_ = false;
    return ok();
  }
  std::vector<Piece> pieces() override {
    std::vector<Piece> pieces = updater_.pieces(Held::kInParts);
    if (!bf16_) return pieces;
    for (Piece& piece : loss_scale_.pieces()) pieces.push_back(std::move(piece));
    return pieces;
  }
  std::string note() const override { return bf16_ ? loss_scale_.note() : ""; }

 private:
  /// A unit whose parameters are here, or on their way.
  struct Gathered {
    Floats values;
    Buffer<Half> half_shard, half;
    Pending pending;
  };
  /// A gradient that is being reduced.
  struct Flight {
    Floats whole, reduced;
    Buffer<Half> half, half_reduced;
    std::size_t unit = 0;
    bool add = false;
    Pending pending;
  };

  float* shard(Floats& values, std::size_t unit) { return values.data() + shards_.offset(unit); }

  Result<Buffer<Half>> halves(std::span<const float> values) const {
    TUTTI_TRY(auto half, Buffer<Half>::make(setup_.ledger, Holds::kTransient, values.size()));
    std::transform(values.begin(), values.end(), half.data(), round_to_half);
    return half;
  }

  /// Starts to gather a unit, unless that has been done.
  Status gather(std::size_t unit) {
    Gathered& into = gathered_[unit];
    if (into.values.data() != nullptr) return ok();
    TUTTI_TRY(into.values, make(Holds::kTransient, shards_.padded(unit)));
    Request gather = shards_.all_gather(unit, shard(weights_, unit), into.values.data());
    if (bf16_ && !evaluates_) {
      TUTTI_TRY(into.half_shard, halves({shard(weights_, unit), shards_.shard_of(unit)}));
      TUTTI_TRY(into.half,
                Buffer<Half>::make(setup_.ledger, Holds::kTransient, shards_.padded(unit)));
      gather.input = into.half_shard.data();
      gather.output = into.half.data();
      gather.type = DataType::kBfloat16;
    }
    TUTTI_TRY(into.pending, traffic().start(gather));
    return ok();
  }
  Status arrive(std::size_t unit) {
    Gathered& into = gathered_[unit];
    if (!into.pending.started()) return ok();
    TUTTI_RETURN_IF_ERROR(traffic().wait(into.pending));
    if (into.half.data() == nullptr) return ok();
    std::transform(into.half.span().begin(), into.half.span().end(), into.values.data(), widen);
    into.half = {};
    into.half_shard = {};
    return ok();
  }
  /// Waits for the reduction that is under way, and adds this rank's shard to what it keeps.
  Status land() {
    if (!flight_.pending.started()) return ok();
    TUTTI_RETURN_IF_ERROR(traffic().wait(flight_.pending));
    float* into = shard(gradients_, flight_.unit);
    for (std::size_t i = 0; i < shards_.shard_of(flight_.unit); ++i) {
      const float sum = bf16_ ? widen(flight_.half_reduced.data()[i]) : flight_.reduced.data()[i];
      into[i] = flight_.add ? into[i] + sum : sum;
    }
    flight_ = {};
    return ok();
  }

  Shards shards_;
  const bool bf16_;
  Floats weights_, gradients_;  // Shards in float32.
  std::vector<Gathered> gathered_;
  Floats gradient_;  // The whole one of the unit that backward computes.
  Flight flight_;
  Updater updater_;
  bool backward_ = false, visited_last_ = false, evaluates_ = false;
  LossScale loss_scale_;
};

}  // namespace

std::unique_ptr<Strategy> make_fsdp(const Setup& setup) { return std::make_unique<Fsdp>(setup); }

}  // namespace tutti::trainer
