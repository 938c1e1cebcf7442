// File: tools/status/waiting.h: which rank of a communicator waits for which, and the rank that all
// others wait for. A function of what was read.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/status/find.h"

namespace tutti::tools {

/// What a rank does.
struct RankStatus {
  const FoundTrack* found = nullptr;
  // Its latest call, or the first that is not over; null: it has made none.
  const exec::flight::Seen* last_call = nullptr;
  std::uint64_t made = 0;                       // The latest call's number.
  const exec::flight::Seen* message = nullptr;  // Its oldest message that is not over.
  bool in_call = false;                         // The latest call is not over.
  int awaited = -1;                             // The rank that it waits for; -1: none.
  std::int64_t since_ns = 0;                    // When what it waits in began; 0: not known.
};

/// How late a rank comes to calls, compared with the first rank, in calls whose begin all ranks of
/// this host have looked up.
struct Lateness {
  std::uint64_t last = 0;                         // Calls to which it came last,
  std::int64_t lost_ns = 0;                       // the time that the first rank waited in them,
  double share = 0;                               // and its share of the time lost in all calls.
  std::int64_t median_ns = 0, percentile_99 = 0;  // Behind the first rank, in all calls.
};

struct CommStatus {
  int ranks = 1;
  std::map<int, RankStatus> by_rank;  // Those of this host whose processes live.
  // The rank that others wait for, and that waits for none of them; -1: nobody waits.
  int blocker = -1;
  std::vector<int> waiting;    // The ranks that wait for it, directly or not.
  std::int64_t waited_ns = 0;  // The longest of them.
  std::vector<int> chain;      // The longest: each waits for the next.
  std::string blame, waits;    // Say that, in two halves of a sentence; empty: nobody waits.
  std::map<int, Lateness> lateness;
  std::uint64_t compared = 0;  // Calls that `lateness` is of.
  const FoundTrack& any() const { return *by_rank.begin()->second.found; }
};

/// One for each communicator, in the order in which they were made.
std::vector<CommStatus> find_waiting(const Found& found);
/// Keeps a communicator, with all its ranks, if the process id or job name of one of them is in
/// `only`; if `only` is empty, keeps all.
void keep_wanted(std::vector<CommStatus>& comms, const std::vector<std::string>& only);

}  // namespace tutti::tools
