// File: trainer/worker.h: one rank's part of training: the gradients of its slices, which are
// all-reduced in buckets, and the weights.
//
// Training is a row of units: the steps of an epoch, and its evaluation. A unit is done as a whole
// or not at all, and a rank may be one unit ahead of another that has failed: it can go back by
// one.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trainer/model.h"
#include "trainer/train.h"

namespace tutti::trainer {

inline constexpr std::size_t kFirstBucketBytes = 4096;

/// Gradients on their way: all-reduced in buckets, while backward goes on.
///
/// Layers become ready from the last to the first. A bucket is a run of layers; as soon as the
/// first of its layers (the last to become ready) is there, its all-reduce starts, and the
/// process's progress thread carries it on. The first bucket is small, so that communication starts
/// early.
class Buckets {
 public:
  Buckets(Communicator& comm, const std::vector<Layer>& layers, float* gradient,
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
      buckets_.push_back({.first_layer = l, .offset = layer.offset, .size = layer.size()});
    }
  }

  /// Layer `l`'s gradient is complete on this rank; starts its bucket if that was the last it
  /// waited for.
  Status ready(std::size_t l) {
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
  /// Waits until all buckets have been reduced.
  Status finish() {
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

  std::size_t count() const { return buckets_.size(); }
  /// How long this rank did nothing but wait.
  double idle_seconds() const { return waiting_s_; }
  /// Share of the communication's time that backward and the rest of the step hid, 0 to 1.
  double hidden() const {
    return communicating_s_ > 0 ? std::clamp(1 - waiting_s_ / communicating_s_, 0.0, 1.0) : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Bucket {
    std::size_t first_layer = 0, offset = 0, size = 0;
    Work work{};
    Clock::time_point started{};
    std::shared_ptr<std::atomic<Clock::rep>> ended = std::make_shared<std::atomic<Clock::rep>>(0);
  };
  Communicator& comm_;
  float* gradient_;
  std::vector<Bucket> buckets_;  // In the order in which they become ready.
  std::size_t next_ = 0;
  double communicating_s_ = 0, waiting_s_ = 0;
};

struct FreeShared {
  void operator()(float* memory) const { (void)mem_free(memory); }
};

/// What training has come to: alike on all ranks, but for `loss`.
struct State {
  std::vector<float> weights, velocity;
  std::uint64_t unit = 0;  // The next one.
  double loss = 0;         // Over this rank's images of the epoch so far.
  std::vector<Epoch> epochs;
};

/// It has more than 20 functions: what an epoch, a step and a batch do, and what elastic training
/// (elastic.h) needs.
class Worker {
 public:
  Worker(const Split& data, const TrainOptions& options);

  /// Takes part in `comm` from now on, which has to live until the next `use`.
  Status use(Communicator& comm);
  /// The first weights, the same on all ranks that were given the same seed.
  void initialise();
  /// Does the next unit. The figures of an epoch, if it was the last one of that.
  Result<std::optional<Epoch>> advance();
  bool done() const { return state_.unit == units() * static_cast<std::uint64_t>(options_.epochs); }
  /// Whether the next unit is the first of an epoch.
  bool begins_epoch() const { return state_.unit % units() == 0; }

  /// Keeps a copy of the state before each unit, for go_back.
  void keep_copies() { keeps_ = true; }
  /// To the state before that unit, which was the last one. False: there is none.
  bool go_back(std::uint64_t unit);
  /// All ranks get the state of `root`.
  Status hand_over(Rank root);

  /// A hash of the weights' bits; an error unless it is the same on all ranks.
  Result<std::uint64_t> check_replicas() const;

  const State& state() const { return state_; }
  const Buckets& buckets() const { return *buckets_; }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(comm_->rank_count()); }
  std::size_t me() const { return static_cast<std::size_t>(comm_->rank().value); }
  std::size_t group() const {
    return options_.batch * static_cast<std::size_t>(options_.accumulate);
  }
  std::uint64_t steps() const { return (order_.size() + group() - 1) / group(); }
  std::uint64_t units() const { return steps() + 1; }  // In an epoch.
  double rate_at(double epoch) const;
  Result<double> step(std::size_t first, std::size_t last, double rate);
  Result<Epoch> evaluate();
  Result<double> accumulate(std::size_t begin, std::size_t end, bool add, bool last_batch);
  Result<double> idle(bool add, bool last_batch);
  float* tree(std::size_t first, std::size_t count, std::size_t offset, std::size_t size);

  Communicator* comm_ = nullptr;
  const Split& data_;
  const TrainOptions& options_;
  Model model_;
  std::vector<std::size_t> order_;  // The images', in the epoch before `shuffled_`.
  std::uint64_t shuffled_ = 0;      // Epochs.
  // Peers can map it, so that reducing it needs no copy.
  std::unique_ptr<float, FreeShared> gradient_;
  State state_, before_;
  bool keeps_ = false;
  std::vector<std::vector<float>> partial_;  // The gradients of this rank's slices.
  std::optional<Buckets> buckets_;
};

}  // namespace tutti::trainer
