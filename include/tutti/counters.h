// File: tutti/counters.h: what a rank has done on a communicator, and for which ranks it waited.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tutti/types.h"

namespace tutti {

/// One rank's counters since its communicator was made; see Communicator::counters. They cost a
/// call nothing but a look at the clock in calls by a plan that wait.
struct Counters {
  struct Calls {
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;  // Per call the larger of a rank's input and output.
  };
  struct Wait {
    std::uint64_t calls = 0;  // To which that rank came last, so that this one waited for it,
    std::chrono::nanoseconds time{};  // and how long.
  };

  std::array<Calls, kCollectiveCount> collectives{};  // By Collective.
  std::uint64_t barriers = 0;
  Calls messages;                       // Sent and received.
  std::chrono::nanoseconds age{};       // Since the communicator was made.
  std::chrono::nanoseconds in_calls{};  // Calls by a plan, and small ones that waited long.
  /// By rank: waits for ranks that came late to a collective, in small calls from some 50 us on.
  /// Started calls wait while the program goes on, so their waits need not be lost time.
  std::vector<Wait> waits;

  const Calls& of(Collective collective) const {
    return collectives[static_cast<std::size_t>(collective)];
  }
  std::uint64_t calls() const {
    std::uint64_t all = barriers;
    for (const Calls& one : collectives) all += one.calls;
    return all;
  }
  std::chrono::nanoseconds waited() const {
    std::chrono::nanoseconds all{};
    for (const Wait& wait : waits) all += wait.time;
    return all;
  }
  /// The rank for which this one waited longest; Rank{-1}: it waited for none. A rank never waits
  /// for itself: to find the slowest rank of a job, add up the waits of all ranks.
  Rank slowest() const {
    Rank slowest{-1};
    std::chrono::nanoseconds most{};
    for (std::size_t rank = 0; rank < waits.size(); ++rank) {
      if (waits[rank].time <= most) continue;
      most = waits[rank].time;
      slowest = Rank{static_cast<int>(rank)};
    }
    return slowest;
  }
};

}  // namespace tutti
