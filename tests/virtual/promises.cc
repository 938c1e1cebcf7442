// What a run has to keep, whatever goes wrong: every call returns in time, an ok is a right result,
// an error needs a fault and names it, and a buffer is the caller's once a call has failed.
#include <algorithm>
#include <cstdio>
#include <string>

#include "tutti/result.h"
#include "virtual/kernel/scheduler.h"
#include "virtual/workload.h"

namespace tutti::virt {
namespace {

// Beyond the deadline: looks of 20 ms, 1 s for peers to stop, 0.1 s to say good-bye.
constexpr Time kSlack = 2 * kSecond;

std::string say(int rank, const CallReport& call, const char* what) {
  char text[700];
  std::snprintf(text, sizeof(text),
                "rank %d, call %d (%s), from %.6f to %.6f s: %s; code %d, peer %d: %s", rank,
                call.number, call.what, static_cast<double>(call.begin) / 1e9,
                static_cast<double>(call.end) / 1e9, what, call.code, call.peer, call.text);
  return text;
}

bool any_fault() {
  if (world->fault_at != kNever || world->network_hit) return true;
  return false;
}

Time stalled_for(int rank) {
  for (int i = 0; i < world->process_count; ++i) {
    if (world->processes[i].rank == rank && world->processes[i].stalled_until != 0)
      return world->parameters.faults.stall_for;
  }
  return 0;
}

std::string check(int rank, const CallReport& call) {
  const Parameters& run = world->parameters;
  const Time deadline = static_cast<Time>(run.timeout_ms) * kMilli;
  if (!call.done) return say(rank, call, "it has not returned");
  if (call.wrong && rank != run.odd_rank)
    return say(rank, call, "it is ok, but the result is wrong");
  if (call.touched) return say(rank, call, "its buffer changed after the error");
  if (call.end - call.begin > deadline + kSlack + stalled_for(rank))
    return say(rank, call, "it took longer than the deadline allows");
  if (call.code != 0 && !any_fault()) return say(rank, call, "it failed though nothing has");
  const bool joining = &call == &world->reports[rank].join;
  const bool named = is_blamed(call.peer) || is_blamed(rank) || (joining && call.peer < 0) ||
                     call.code == static_cast<int>(Code::kMismatch);
  if (call.code != 0 && call.part == 0 && !world->network_hit && !named)
    return say(rank, call, "it blames a rank that did nothing");
  return {};
}

}  // namespace

std::string broken_promise() {
  for (int rank = 0; rank < world->parameters.ranks; ++rank) {
    const RankReport& report = world->reports[rank];
    const bool killed = world->processes[rank].killed;
    if (killed) continue;
    if (!report.finished) return "rank " + std::to_string(rank) + " did not come to its end";
    if (auto broken = check(rank, report.join); !broken.empty()) return broken;
    for (int i = 0; i < report.call_count; ++i) {
      if (auto broken = check(rank, report.calls[i]); !broken.empty()) return broken;
    }
  }
  return {};
}

}  // namespace tutti::virt
