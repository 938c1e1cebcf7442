// File: exec/adapt/patience.h: how much longer a rank with a CPU of its own yields before it
// sleeps.
//
// A rank wakes its sleeping peers one after another. If that takes longer than the first of them
// yields, the first sleeps again before the last is awake, and all may sleep in each call from then
// on. So a rank that sleeps for a short time yields for longer in its next wait, twice as long each
// time. A long sleep ends that. The rank checks its peers before these yields, so that other ranks
// and `tutti status` see in time that it waits.
#pragma once
#include <algorithm>
#include <chrono>

#include "base/wait.h"

namespace tutti::exec {

class Patience {
 public:
  using Span = std::chrono::steady_clock::duration;

  /// The most yields, in multiples of the first ones: some 5 ms.
  static constexpr int kMost = 64;
  /// A sleep of this length is worth more than the CPU time of yields.
  static constexpr Span kLong = std::chrono::milliseconds(20);

  /// `first`: how many yields the first short sleep adds to those of the WaitPolicy; 0: no sleep
  /// ever adds any.
  explicit Patience(int first) : first_(first) {}

  int yields() const { return yields_; }
  /// Yields so often, or until `ready`. True if ready.
  template <class Ready>
  bool yield_until(Ready&& ready) const {
    return tutti::yield_until(yields_, ready);
  }
  /// A wait is over in which this rank slept; `slept`: from the first nap to the end of the wait.
  void slept(Span slept) {
    yields_ = slept < kLong ? std::min(std::max(2 * yields_, first_), kMost * first_) : 0;
  }

 private:
  int first_, yields_ = 0;
};

}  // namespace tutti::exec
