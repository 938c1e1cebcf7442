#include "trainer/buckets.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

constexpr std::size_t kFirstBucketBytes = 4096;

}  // namespace

Buckets::Buckets(Communicator& comm, const std::vector<Layer>& layers, float* gradient,
                 std::size_t bucket_bytes)
    : comm_(comm), gradient_(gradient) {
  for (std::size_t l = layers.size(); l-- > 0;) {
    const std::size_t most =
        buckets_.size() <= 1 ? std::min(kFirstBucketBytes, bucket_bytes) : bucket_bytes;
    const Layer& layer = layers[l];
    if (!buckets_.empty() && (buckets_.back().size + layer.size()) * sizeof(float) <= most) {
      buckets_.back().first_layer = l;
      buckets_.back().offset = layer.offset;
      buckets_.back().size += layer.size();
      continue;
    }
    Bucket bucket;
    bucket.first_layer = l;
    bucket.offset = layer.offset;
    bucket.size = layer.size();
    buckets_.push_back(std::move(bucket));
  }
}

Status Buckets::ready(std::size_t l) {
  if (next_ == buckets_.size() || buckets_[next_].first_layer != l) return ok();
  Bucket& bucket = buckets_[next_++];
  float* data = gradient_ + bucket.offset;
  bucket.started = Clock::now();
  bucket.ended->store(0, std::memory_order_relaxed);
  TUTTI_TRY(bucket.work,
            comm_.start_all_reduce(data, data, bucket.size, DataType::kFloat32, ReduceOp::kSum));
  bucket.work.then([ended = bucket.ended](const Status&) {
    // relaxed: a figure for people; the work itself orders the data.
    ended->store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  });
  return ok();
}

Status Buckets::finish() {
  const auto begin = Clock::now();
  Clock::time_point busy_until{};  // Calls follow each other; their spans are not counted twice.
  for (Bucket& bucket : buckets_) {
    TUTTI_RETURN_IF_ERROR(bucket.work.wait());
    const auto rep = bucket.ended->load(std::memory_order_relaxed);
    const auto ended = rep == 0 ? Clock::now() : Clock::time_point(Clock::duration(rep));
    const auto from = std::max(bucket.started, busy_until);
    if (ended > from) communicating_s_ += std::chrono::duration<double>(ended - from).count();
    busy_until = std::max(busy_until, ended);
  }
  waiting_s_ += std::chrono::duration<double>(Clock::now() - begin).count();
  next_ = 0;
  return ok();
}

double Buckets::hidden() const {
  return communicating_s_ > 0 ? std::clamp(1 - waiting_s_ / communicating_s_, 0.0, 1.0) : 0;
}

}  // namespace tutti::trainer
