// File: exec/adapt/plan_trials.h: the calls that are timed while their plans are on trial
// (online_tuning.h).
//
// A rank announces with its next call's buffers how long the last call on trial took. All ranks
// read the same announcements, so all note the same slowest rank's time.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "exec/adapt/online_tuning.h"

namespace tutti::exec {

class PlanTrials {
 public:
  explicit PlanTrials(bool adapts) : adapts_(adapts) {}

  /// A trial as its constructor says; one that always takes the first plan if nothing adapts.
  OnlineTuning make(std::size_t plans, double predicted_us, std::size_t uncounted) const {
    return adapts_ ? OnlineTuning(plans, predicted_us, uncounted) : OnlineTuning();
  }
  /// The plan of a call begins, and ends. `online_tuning` stays where it is until `note`.
  void begin(OnlineTuning& online_tuning) {
    if (online_tuning.converged()) return;
    timed_ = &online_tuning;
    start_ = std::chrono::steady_clock::now();
  }
  void end() {
    if (timed_ == nullptr) return;
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start_;
    took_ns_ = static_cast<std::uint32_t>(std::clamp<std::int64_t>(took.count(), 1, UINT32_MAX));
  }
  /// Whether all ranks time a call; then how long it took on this rank, 0 if it has not ended.
  bool timing() const { return timed_ != nullptr; }
  std::uint32_t took_ns() const { return took_ns_; }
  /// How long that call took on the slowest rank.
  void note(std::uint32_t slowest_ns) {
    timed_->note(slowest_ns * 1e-3);
    timed_ = nullptr;
    took_ns_ = 0;
  }

  // relaxed: to be shown.
  void count_try() { tried_.fetch_add(1, std::memory_order_relaxed); }
  /// How often another plan was tried. Any thread.
  std::uint64_t tried() const { return tried_.load(std::memory_order_relaxed); }

 private:
  bool adapts_;
  OnlineTuning* timed_ = nullptr;
  std::chrono::steady_clock::time_point start_;
  std::uint32_t took_ns_ = 0;
  std::atomic<std::uint64_t> tried_{0};
};

}  // namespace tutti::exec
