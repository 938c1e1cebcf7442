// File: base/wait.h: the one way in which a rank waits for another.
//
// Spin a little, then yield, then sleep on a futex. Spinning is only for ranks that have a CPU
// each: when there are more ranks than CPUs, a spinning waiter keeps the rank that it waits for
// from running, unless it knows that none of its CPU is waited for (HostExecutor::look_for_news).
//
// A rank that changes what a peer may be waiting for calls `notify`. Waking a sleeper has to cost
// nothing when nobody sleeps, so the poster only loads a flag, without a fence. The sleeper pays:
// after it has raised its flag it makes every CPU execute a barrier (membarrier), looks once more,
// and only then sleeps. Where membarrier is not allowed, posters fence (Doorbells::fence).
#pragma once
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "tutti/rendezvous.h"

namespace tutti {

/// Where one rank sleeps. Lives in memory that all ranks of a node share.
struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> rings{0};     // The futex word; changes with every wake-up.
  std::atomic<std::uint32_t> sleeping{0};  // 1 from before the last look until after the sleep.
};

struct WaitPolicy {
  int spins = 0;
  int yields = 200;
  int ranks_per_cpu = 1;  // Where they are spread evenly; 1: each can have a CPU of its own.
};

/// The policy for `ranks` ranks that share `cpus` CPUs; `spin` >= 0 overrides the pauses.
WaitPolicy wait_policy(int ranks, int cpus, int spin);

/// Prepares this process for `heavy_barrier`; false where the system does not allow it. Any thread.
bool register_heavy_barrier();

/// Wakes the sleeper. Out of line: it is the rare case.
void ring(Doorbell& bell);

/// Tells the owner of `bell` that something it may wait for has changed. `fence` as agreed at
/// set-up: true where some rank can't use heavy_barrier.
inline void notify(Doorbell& bell, bool fence) {
  if (fence) {
    // Orders the change before the look at the flag; pairs with the fence in sleep_on.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else {
    // The compiler must keep the order; the CPU's is restored by the sleeper's heavy_barrier.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  // relaxed: the fences order it; a stale 0 can't be read once the sleeper's barrier is through.
  if (bell.sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
    ring(bell);
}

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

namespace wait_detail {
void heavy_barrier(bool fence);
void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                 std::chrono::nanoseconds longest);
}  // namespace wait_detail

/// One nap: raises the flag, looks once more with `ready`, sleeps until rung or `longest` is over.
/// Returns true if `ready` said so.
template <class Ready>
bool sleep_on(Doorbell& bell, Ready&& ready, std::chrono::nanoseconds longest, bool fence) {
  // acquire: a ring that we see means that what was posted before it is seen as well.
  const std::uint32_t seen = bell.rings.load(std::memory_order_acquire);
  bell.sleeping.store(1, std::memory_order_relaxed);  // relaxed: ordered by the barrier below.
  wait_detail::heavy_barrier(fence);
  const bool done = ready();
  if (!done) wait_detail::futex_sleep(bell.rings, seen, longest);
  // relaxed: a late ring only costs a system call.
  bell.sleeping.store(0, std::memory_order_relaxed);
  return done;
}

/// On crowded CPUs one yield takes tens of milliseconds, and a rank that waits has to check its
/// peers. It looks at the clock after so many yields: most waits end before that.
inline constexpr int kYieldsPerLook = 4;
inline constexpr std::int64_t kLongestYieldingMs = 20;

/// Yields until `ready()`, `most` times, but hardly longer than kLongestYieldingMs. True if ready.
template <class Ready>
bool yield_until(int most, Ready&& ready) {
  std::int64_t end = 0;
  for (int i = 1; i <= most; ++i) {
    sched_yield();
    if (ready()) return true;
    if (i % kYieldsPerLook != 0) continue;
    const std::int64_t now = coarse_ms();
    if (end == 0) end = now + kLongestYieldingMs;
    if (now >= end) return false;
  }
  return false;
}

/// Waits until `ready()` is true. `spun()` is called once when the spins were not enough.
/// `check_health()` is called now and then while waiting, after that; it returns false to end the
/// wait (abort, deadline, a dead peer). True if ready. `sleep(ready, longest)` is one nap, as
/// sleep_on; true if ready.
template <class Ready, class Spun, class HealthCheck, class Sleep>
bool wait_until(const WaitPolicy& policy, Ready&& ready, Spun&& spun, HealthCheck&& check_health,
                Sleep&& sleep) {
  for (int i = 0; i <= policy.spins; ++i) {
    if (ready()) return true;
    cpu_relax();
  }
  spun();
  if (yield_until(policy.yields, ready)) return true;
  while (check_health()) {
    if (sleep(ready, std::chrono::milliseconds(20))) return true;
    if (ready()) return true;
  }
  return false;
}

}  // namespace tutti
