// File: exec/adapt/slot_stores.h: whether slots are written into the cache or past it, found out by
// trying.
//
// Where writer and reader share a cache, slots that stay in it are best. Where they do not, every
// line is fetched from the writer's cache, one request at a time, and a writer that sends it to
// memory at once makes the reader several times faster. Which of the two holds is not always what
// the machine says of itself: a hypervisor may move two virtual CPUs from one die to two and back
// within minutes. Measured on 2 cores of an EPYC, 64 KiB: 9.7 us cached and 7.4 us past the cache
// on one die, 34 and 7.4 on two; with deep rings 5.7 us cached on one die.
//
// So once in a while one call of a kind is made the usual way and the next of that kind the other
// way, both timed, from when all ranks had entered to the end. All ranks make the same calls, so
// all try in the same calls; what each concludes is its own affair.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace tutti::exec {

class SlotStores {
 public:
  explicit SlotStores(bool adapts) : adapts_(adapts) {}

  /// For calls that are not worth a trial: eager ones. True is past the cache. Any thread.
  // relaxed: written by the thread of calls; others only show it.
  bool usual() const { return streaming_.load(std::memory_order_relaxed); }

  /// How this call writes its slots: true is past the cache. `kind` tells kinds of calls apart.
  bool begin(const void* kind) {
    if (!adapts_) return false;
    const std::uint32_t turn = calls_++ % kPeriod;
    timed_ = turn == kUsual || (turn == kOther && kind == kind_);
    other_ = timed_ && turn == kOther;
    if (!timed_) return usual();
    kind_ = kind;
    start_ = Clock::now();
    return usual() != other_;
  }

  /// The call has ended.
  void end() {
    if (!timed_) return;
    const double ns =
        std::max(1.0, std::chrono::duration<double, std::nano>(Clock::now() - start_).count());
    if (!other_) {
      usual_ns_ = ns;
      return;
    }
    // One interrupted call must not turn the balance, two good ones in a row should.
    balance_ = 0.5 * balance_ + 0.5 * std::clamp(std::log2(ns / usual_ns_), -2.0, 2.0);
    if (balance_ > kTurn) return;
    streaming_.store(!usual(), std::memory_order_relaxed);  // relaxed: as in usual.
    balance_ = 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint32_t kPeriod = 64, kUsual = 2, kOther = 3;
  static constexpr double kTurn = -0.15;  // The other way is a tenth faster, averaged.

  bool adapts_;
  std::atomic<bool> streaming_{false};
  bool timed_ = false, other_ = false;
  std::uint32_t calls_ = 0;
  const void* kind_ = nullptr;
  Clock::time_point start_;
  double usual_ns_ = 1, balance_ = 0;
};

}  // namespace tutti::exec
