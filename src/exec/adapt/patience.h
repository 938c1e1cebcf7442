// File: exec/adapt/patience.h: how long a rank yields before it sleeps, where each rank has a CPU.
//
// To be woken takes time, and ranks are woken one after another. If the last one awake comes later
// than the first one is patient, the first sleeps again, and so all do in each call from then on:
// 16 ranks on 16 CPUs took 2 ms for what takes 2.5 us. So a rank that was woken soon after it fell
// asleep is twice as patient the next time; one that slept long is as patient as at first.
#pragma once
#include <algorithm>
#include <chrono>

#include "base/wait.h"

namespace tutti::exec {

class Patience {
 public:
  using Span = std::chrono::steady_clock::duration;

  /// The most yields, in those of the policy: some 5 ms.
  static constexpr int kMost = 64;
  /// To sleep so long was worth it.
  static constexpr Span kLong = std::chrono::milliseconds(20);

  explicit Patience(const WaitPolicy& policy) : policy_(policy), least_(policy.yields) {}

  const WaitPolicy& policy() const { return policy_; }
  /// A wait is over in which this rank slept, in all for so long.
  void slept(Span slept) {
    if (policy_.ranks_per_cpu > 1) return;
    policy_.yields = slept < kLong ? std::min(2 * policy_.yields, kMost * least_) : least_;
  }

 private:
  WaitPolicy policy_;
  int least_;
};

}  // namespace tutti::exec
