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
// several batches in a step, only the last one communicates.
#include <algorithm>

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
      buckets_.push_back({u, unit.offset, unit.size, {}});
    }
  }

  Status ready(std::size_t unit) override {
    if (!last_batch_ || buckets_[next_].first_unit != unit) return ok();
    Bucket& bucket = buckets_[next_++];
    float* data = gradients() + bucket.offset;
    TUTTI_TRY(bucket.pending, traffic().start({.collective = Collective::kAllReduce,
                                               .input = data,
                                               .output = data,
                                               .count = bucket.size,
                                               .type = DataType::kFloat32}));
    return ok();
  }

  Status step(const StepInfo& info) override {
    for (Bucket& bucket : buckets_) TUTTI_RETURN_IF_ERROR(traffic().wait(bucket.pending));
    next_ = 0;
    return update(info.number, info.rate, info.labels);
  }

  std::string note() const override { return std::to_string(buckets_.size()) + " buckets"; }

 private:
  struct Bucket {
    std::size_t first_unit, offset, size;
    Pending pending;
  };
  std::vector<Bucket> buckets_;  // In the order in which they become ready.
  std::size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Strategy> make_ddp(const Setup& setup) { return std::make_unique<Ddp>(setup); }

}  // namespace tutti::trainer
