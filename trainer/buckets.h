// File: trainer/buckets.h: gradients on their way: all-reduced in buckets, while backward goes on.
//
// Layers become ready from the last to the first. A bucket is a run of layers; as soon as the first
// of its layers (the last to become ready) is there, its all-reduce starts, and the process's
// progress thread carries it on. The first bucket is small, so that communication starts early.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "trainer/model.h"
#include "tutti/communicator.h"

namespace tutti::trainer {

class Buckets {
 public:
  Buckets(Communicator& comm, const std::vector<Layer>& layers, float* gradient,
          std::size_t bucket_bytes);

  /// Layer `l`'s gradient is complete on this rank; starts its bucket if that was the last it
  /// waited for.
  Status ready(std::size_t l);
  /// Waits until all buckets have been reduced.
  Status finish();

  std::size_t count() const { return buckets_.size(); }
  /// Share of the communication's time that backward and the rest of the step hid, 0 to 1.
  double hidden() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Bucket {
    std::size_t first_layer = 0, offset = 0, size = 0;
    Work work;
    Clock::time_point started;
    std::shared_ptr<std::atomic<Clock::rep>> ended = std::make_shared<std::atomic<Clock::rep>>(0);
  };
  Communicator& comm_;
  float* gradient_;
  std::vector<Bucket> buckets_;  // In the order in which they become ready.
  std::size_t next_ = 0;
  double communicating_s_ = 0, waiting_s_ = 0;
};

}  // namespace tutti::trainer
