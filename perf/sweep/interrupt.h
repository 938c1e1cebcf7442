// File: sweep/interrupt.h: Ctrl-C during a sweep. The first one asks the ranks to end with what
// they have measured; the second ends the process.
#pragma once
#include <sys/types.h>

#include <span>

namespace tutti::perf {

/// From now on this process notes the first SIGINT; a second one has its usual effect. Not where
/// the process was started to ignore the signal. Twice is as once.
void note_interrupts();
bool interrupted();
/// Whether the signal came so long ago that a measurement under way has to stop.
bool interrupt_overdue();

/// For a process that forks ranks and waits for them. From the constructor on it holds SIGINT back;
/// a rank calls `release` after the fork. `wait` passes the first SIGINT on to the ranks, because
/// it may have come to this process alone. The second ends this process, and the ranks with it.
/// Once a rank has failed or been interrupted, stopped ranks are continued, and after some seconds
/// those that have not ended are killed.
class RanksInterrupts {
 public:
  RanksInterrupts();
  ~RanksInterrupts() { release(); }
  RanksInterrupts(const RanksInterrupts&) = delete;
  RanksInterrupts& operator=(const RanksInterrupts&) = delete;

  void release() const;
  /// Waits for all of them. The exit code of the first that failed, else 0; 130 if an interrupt
  /// came and they had to be killed.
  int wait(std::span<pid_t> ranks) const;

 private:
  sigset_t old_{};
};

}  // namespace tutti::perf
