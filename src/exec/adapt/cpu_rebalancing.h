// File: exec/adapt/cpu_rebalancing.h: whether a rank that is one too many on its CPU should move.
//
// Kernels leave ranks together on a CPU for minutes though another has fewer: each wake-up finds
// the CPU of the waker good enough, and a rank that yields all the time was always running just
// now. But where ranks share CPUs anyway a kernel may have a reason that they can't see: other
// programs run on the other CPU, and beside one of those a small call waits milliseconds for the
// end of its time slice. So there a move is an experiment: calls are timed before and after it, and
// it is undone if they got slower. Where each rank has a CPU, two on one are worse than anything.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tutti::exec {

class CpuRebalancing {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Span = std::chrono::steady_clock::duration;
  enum class Move { kStay, kAside, kBack };

  /// Between two moves; at least this after one that made calls slower; and at most.
  static constexpr Span kPause = std::chrono::milliseconds(1);
  static constexpr Span kPauseAfterWorse = std::chrono::milliseconds(100);
  static constexpr Span kLongestPause = std::chrono::milliseconds(1000);
  /// From a move until it is judged.
  static constexpr Span kTrial = std::chrono::milliseconds(10);
  /// Where each rank has a CPU: how long and for how many calls it must look as if this one has
  /// not. What a peer says of its CPU is up to so many calls old, and two ranks that the kernel
  /// leaves together stay so.
  static constexpr Span kSure = std::chrono::microseconds(200);
  static constexpr std::uint64_t kSureCalls = 16;

  /// `tries`: moves are experiments.
  explicit CpuRebalancing(bool tries) : tries_(tries) {}

  /// What to do at `now`, in call `number`, being one too many on this CPU or not. kAside: to where
  /// there is room; kBack: off this CPU.
  Move look(Time now, std::uint64_t number, bool oversubscribed) {
    const std::uint64_t calls = number - first_;
    if (on_trial_ && now - since_ >= kTrial && calls != 0) {
      on_trial_ = false;
      const bool worse = judge((now - since_) / calls);
      next_ = now + pause_;
      if (worse) return oversubscribed ? Move::kStay : Move::kBack;  // The kernel may have done it.
    }
    if (!was_oversubscribed_) first_seen_ = now, first_seen_call_ = number;
    const bool sure = now - first_seen_ >= kSure && number - first_seen_call_ >= kSureCalls;
    // How long calls take so; or that it is so.
    const bool known = was_oversubscribed_ && (tries_ || sure);
    const bool moves = oversubscribed && known && now >= next_;
    was_oversubscribed_ = oversubscribed;
    if (moves) next_ = now + pause_;
    if (on_trial_) return moves ? Move::kAside : Move::kStay;  // The kernel has moved it back.
    if (moves && tries_ && calls != 0) {
      before_ = (now - since_) / calls;
      on_trial_ = true;
    }
    since_ = now;
    first_ = number;
    return moves ? Move::kAside : Move::kStay;
  }

 private:
  /// Whether calls that take `each` have become slower.
  bool judge(Span each) {
    const bool worse = each > before_ + before_ / 2;
    pause_ = each < before_ ? kPause : std::min<Span>(2 * pause_, kLongestPause);
    if (worse) pause_ = std::max(pause_, kPauseAfterWorse);
    return worse;
  }

  bool tries_, was_oversubscribed_ = false, on_trial_ = false;
  Time since_;               // The last look, or the move that is on trial,
  std::uint64_t first_ = 0;  // and the call of then.
  Span before_{};            // Each call, before that move.
  Span pause_ = kPause;
  Time next_;                          // From when on it may move.
  Time first_seen_;                    // Oversubscribed, without a look since that it was not,
  std::uint64_t first_seen_call_ = 0;  // and the call of then.
};

}  // namespace tutti::exec
