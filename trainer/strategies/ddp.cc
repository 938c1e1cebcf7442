// Distributed data parallel: every rank has all parameters, and computes the gradient over its
// share of the batch. The mean of the gradients changes all replicas alike.
//
//   g = 1/B sum over ranks r of g_r          w = update(w, g)
//   sent on each rank and step: 2 (N-1)/N S; held: parameters, gradients, optimiser, all whole
//
// Li et al.: PyTorch Distributed: Experiences on Accelerating Data Parallel Training, 2020.
//
// Units become ready from the last to the first. A bucket is a run of units; as soon as the first
// of its units is there, the last to become ready, its all-reduce starts, and goes on while
// backward computes the others. The first bucket is small, so that communication starts early. With
// several batches in a step, only the last one communicates. A rank may leave units out of a step
// (find-unused): it sends zeros for them, and a unit that no rank has used does not change.
#include <algorithm>
#include <utility>

#include "trainer/strategies/replica.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kFirstBucketBytes = 4096;

class Ddp : public Replica {
 public:
  explicit Ddp(const Setup& setup) : Replica(setup) {
    for (std::size_t u = units().size(); u-- > 0;) {
      const Unit& unit = units()[u];
      const std::size_t most = buckets_.size() <= 1
                                   ? std::min(kFirstBucketBytes, options().bucket_bytes)
                                   : options().bucket_bytes;
      if (!buckets_.empty() && (buckets_.back().size + unit.size) * sizeof(float) <= most) {
        buckets_.back().first_unit = u;
        buckets_.back().offset = unit.offset;
        buckets_.back().size += unit.size;
        continue;
      }
      buckets_.push_back({u, u, unit.offset, unit.size, {}});
    }
  }

  Status begin(std::span<const float> weights) override {
    arrived_.assign(units().size(), 0);
    return Replica::begin(weights);
  }

  Status begin_step(std::span<float> buffers) override {
    if (!options().broadcast_buffers || buffers.empty()) return ok();
    return traffic().call({.collective = Collective::kBroadcast,
                           .input = buffers.data(),
                           .output = buffers.data(),
                           .count = buffers.size(),
                           .type = DataType::kFloat32,
                           .root = Rank{0}});
  }
  Result<Target> gradient(std::size_t unit) override {
    return Target{gradients() + units()[unit].offset, arrived_[unit] != 0};
  }
  Status ready(std::size_t unit) override {
    arrived_[unit] = 1;
    return last_batch_ ? start(unit) : ok();
  }

  Status step(const StepInfo& info) override {
    TUTTI_RETURN_IF_ERROR(start(0));
    for (Bucket& bucket : buckets_) TUTTI_RETURN_IF_ERROR(traffic().wait(bucket.pending));
    next_ = 0;
    // A unit that no rank has used keeps its weights.
    std::vector<char> used = std::exchange(arrived_, std::vector<char>(units().size()));
    if (options().find_unused) {
      TUTTI_RETURN_IF_ERROR(
          traffic().all_reduce(used.data(), used.size(), DataType::kUint8, ReduceOp::kMax));
    }
    return update(info.number, info.rate, info.labels, &used);
  }

  std::string note() const override { return std::to_string(buckets_.size()) + " buckets"; }

 private:
  /// Starts the buckets whose units backward has passed, now that it is at `unit`.
  Status start(std::size_t unit) {
    for (; next_ < buckets_.size() && buckets_[next_].first_unit >= unit; ++next_) {
      Bucket& bucket = buckets_[next_];
      for (std::size_t u = bucket.first_unit; u <= bucket.last_unit; ++u) {
        if (arrived_[u] != 0) continue;
        if (!options().find_unused) {
          return Error{Code::kInvalidArgument,
                       "unit " + units()[u].name +
                           " has no gradient in this step; set find_unused (--find-unused) if "
                           "ranks may leave units out",
                       traffic().communicator().rank()};
        }
        std::fill_n(gradients() + units()[u].offset, units()[u].size, 0.0F);
      }
      float* data = gradients() + bucket.offset;
      TUTTI_TRY(bucket.pending, traffic().start({.collective = Collective::kAllReduce,
                                                 .input = data,
                                                 .output = data,
                                                 .count = bucket.size,
                                                 .type = DataType::kFloat32}));
    }
    return ok();
  }

  struct Bucket {
    std::size_t first_unit, last_unit, offset, size;
    Pending pending;
  };
  std::vector<Bucket> buckets_;  // In the order in which they become ready.
  std::size_t next_ = 0;
  std::vector<char> arrived_;  // By unit: its gradient is there, of a batch of this step.
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(const Setup& setup) { return std::make_unique<Ddp>(setup); }

}  // namespace tutti::trainer
