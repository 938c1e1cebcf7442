// File: exec/adapt/patience.h: how much longer a rank with a CPU of its own yields before it
// sleeps.
//
// To be woken takes time, and ranks are woken one after another. If the last one awake comes later
// than the first one is patient, the first sleeps again, and so may all do in each call from then
// on: then a call takes as long as to wake all, milliseconds for 16 ranks. So a rank that was woken
// soon after it fell asleep yields for longer the next time, twice as long as it did; one that
// slept long does not. It has told others by then that it waits.
#pragma once
#include <sched.h>

#include <algorithm>
#include <chrono>

namespace tutti::exec {

class Patience {
 public:
  using Span = std::chrono::steady_clock::duration;

  /// The most yields, in those that a rank begins with: some 5 ms.
  static constexpr int kMost = 64;
  /// To sleep so long was worth it.
  static constexpr Span kLong = std::chrono::milliseconds(20);

  /// `first`: how many yields it begins with; 0: this rank is to sleep at once.
  explicit Patience(int first) : first_(first) {}

  int yields() const { return yields_; }
  /// Yields so often, or until `ready`. True if ready.
  template <class Ready>
  bool yield_until(Ready&& ready) const {
    for (int i = 0; i < yields_; ++i) {
      sched_yield();
      if (ready()) return true;
    }
    return false;
  }
  /// A wait is over in which this rank slept, in all for so long.
  void slept(Span slept) {
    yields_ = slept < kLong ? std::min(std::max(2 * yields_, first_), kMost * first_) : 0;
  }

 private:
  int first_, yields_ = 0;
};

}  // namespace tutti::exec
