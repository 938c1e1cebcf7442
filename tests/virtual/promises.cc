// What a run has to keep, whatever goes wrong: every call returns in time, an ok is a right result,
// an error needs a fault and names it, and a buffer is the caller's once a call has failed.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "tutti/result.h"
#include "virtual/kernel/scheduler.h"
#include "virtual/recovery.h"
#include "virtual/workload.h"

namespace tutti::virt {
namespace {

// The deadline is that of a wait. A call has several, and a rank may stand still between two of
// them: a call takes up to twice as long, and 5 s more where it asks a rank for memory that stands
// still; then 1 s to tell other hosts, and 1 s for peers to stop.
constexpr Time kSlack = 7 * kSecond;
// When joining fails: 2 s of grace for rank 0's verdict, 5 s to tell it, twice; 1 s of its store. A
// request to a store whose host has gone takes as long as the deadline again, and there are two.
constexpr Time kJoinSlack = 12 * kSecond;
// Within that, a death or an abort has reached every rank that makes a call.
constexpr Time kHaste = 1500 * kMilli;
// A call that waits for nothing.
constexpr Time kAtOnce = kMilli;

std::string say(int rank, const CallReport& call, const char* what) {
  char text[700];
  std::snprintf(text, sizeof(text),
                "rank %d, call %d (%s), from %.6f to %.6f s: %s; code %d, peer %d: %s", rank,
                call.number, call.what, static_cast<double>(call.begin) / 1e9,
                static_cast<double>(call.end) / 1e9, what, call.code, call.peer, call.text);
  return text;
}

bool any_fault() { return world->fault_at != kNever || world->network_hit; }

Time stalled_for(int rank) {
  for (int i = 0; i < world->process_count; ++i) {
    if (world->processes[i].rank == rank && world->processes[i].stalled_until != 0)
      return world->parameters.faults.stall_for;
  }
  return 0;
}

/// Whether a list like "rank 3" or "ranks 0, 2 and 3" in the text has a rank that a fault has hit.
bool names_blamed(std::string_view text) {
  constexpr std::string_view kRank = "rank";
  for (std::size_t at = text.find(kRank); at != std::string_view::npos; at = text.find(kRank, at)) {
    at += kRank.size();
    if (at < text.size() && text[at] == 's') ++at;
    for (bool list = true; list;) {
      const std::string_view rest = text.substr(std::min(at, text.size()));
      const std::size_t skip = rest.starts_with(" and ") ? 5
                               : rest.starts_with(", ")  ? 2
                               : rest.starts_with(" ")   ? 1
                                                         : 0;
      int rank = -1;
      const auto [end, failure] =
          std::from_chars(rest.data() + skip, rest.data() + rest.size(), rank);
      list = failure == std::errc{} && rank < kMostRanks;
      if (list && is_blamed(rank)) return true;
      if (list) at += static_cast<std::size_t>(end - rest.data());
    }
  }
  return false;
}

/// A part has numbers of its own: every second rank, or all (see RankRun::split).
int peer_in_whole(const CallReport& call) {
  if (call.part == 0 || call.peer < 0) return call.peer;
  return call.part - 1 + call.peer * (world->parameters.ranks > 3 ? 2 : 1);
}

/// Whether the rank that a call blames has stopped before that call ended.
bool had_stopped(const CallReport& call) {
  const int peer = peer_in_whole(call);
  return peer >= 0 && world->reports[peer].stopped_at <= call.end;
}

/// When a call's error was first said. All ranks that fail to join repeat the first verdict, each
/// in its own time: the rank that is blamed may have returned before the others.
Time first_said(const CallReport& call) {
  Time first = call.end;
  for (int rank = 0; rank < world->parameters.ranks; ++rank) {
    const CallReport& theirs = world->reports[rank].join;
    const bool same = theirs.code == call.code && theirs.peer == call.peer &&
                      std::strcmp(theirs.text, call.text) == 0;
    if (theirs.done && same) first = std::min(first, theirs.end);
  }
  return first;
}

/// Whether the rank that is blamed had found no store of rank 0, and could tell nobody.
bool gave_up(const CallReport& call) {
  const CallReport& join = world->reports[peer_in_whole(call)].join;
  return join.done && join.code != 0 && join.end < first_said(call);
}

/// Whether the rank that is blamed was itself in a call that failed, or still joined: it shows no
/// call, and not yet which rank it waits for.
bool waited_as_well(const CallReport& call) {
  const RankReport& blamed = world->reports[peer_in_whole(call)];
  // Equal: the rank itself was the first that said or repeated it.
  if (blamed.join.end >= first_said(call)) return true;
  const int last = blamed.call_count - 1;
  return last >= 0 && blamed.calls[last].code != 0 && blamed.calls[last].begin < call.end;
}

/// The call that gave this one's verdict, a missed deadline: the first to end with it of those that
/// lasted as long. The others repeat it, also those that have only begun, and may be back sooner.
const CallReport& first_with_verdict_of(const CallReport& call) {
  const Time deadline = static_cast<Time>(world->parameters.timeout_ms) * kMilli;
  const CallReport* first = nullptr;
  for (int rank = 0; rank < world->parameters.ranks; ++rank) {
    const RankReport& report = world->reports[rank];
    for (int i = 0; i < report.call_count; ++i) {
      const CallReport& one = report.calls[i];
      const bool same = one.code == call.code && one.peer == call.peer && one.part == call.part;
      const bool gave = one.done && same && one.end - one.begin >= deadline;
      if (gave && (first == nullptr || one.end < first->end)) first = &one;
    }
  }
  return first != nullptr ? *first : call;
}

/// Whether the rank that is blamed had not come to that call when the wait for it was over, because
/// one that stood still had held it up while it joined, or in an earlier call.
bool held_up(const CallReport& call) {
  const RankReport& blamed = world->reports[peer_in_whole(call)];
  const auto in_call = [&](Time begin, Time end) {
    const Time from = std::max(begin, call.begin), to = std::min(end, call.end);
    return from < to ? to - from : 0;
  };
  Time held = in_call(blamed.join.begin, blamed.join.end);
  for (int i = 0; i < blamed.call_count; ++i) {
    const CallReport& theirs = blamed.calls[i];
    if (theirs.number == call.number && theirs.first < call.end) return false;
    if (theirs.first >= call.end) break;
    held += in_call(theirs.first, theirs.end);
  }
  bool stood_still = false;
  for (int i = 0; i < world->process_count; ++i)
    stood_still = stood_still || world->processes[i].stalled_until != 0;
  return stood_still && 2 * held >= static_cast<Time>(world->parameters.timeout_ms) * kMilli;
}

/// Whether the call that one rank makes another way has no elements for the others. They are done
/// with it at once, and may have left when the odd one waits for them. Not all have come to it: an
/// error may have ended the call before.
bool odd_call_is_empty() {
  const Parameters& run = world->parameters;
  const auto empty = [&](const CallReport& call) {
    return call.number == run.odd_call && call.empty;
  };
  for (int rank = 0; rank < run.ranks; ++rank) {
    const RankReport& report = world->reports[rank];
    if (rank != run.odd_rank && std::any_of(report.calls, report.calls + report.call_count, empty))
      return true;
  }
  return false;
}

/// Whether the odd rank was done with its odd call by itself. Then it makes its next window with
/// the others' next one, and puts other data there: a window can't tell.
bool odd_one_is_ahead(int rank, const CallReport& call) {
  const Parameters& run = world->parameters;
  const auto is_window = [&](const CallReport& one) {
    return one.number >= run.odd_call && std::string_view(one.what).starts_with("window");
  };
  const auto calls = [](const RankReport& report) {
    return std::span(report.calls, static_cast<std::size_t>(report.call_count));
  };
  if (run.odd_rank < 0 || !is_window(call)) return false;
  if (&call != &*std::ranges::find_if(calls(world->reports[rank]), is_window)) return false;
  return std::ranges::any_of(calls(world->reports[run.odd_rank]), [&](const CallReport& one) {
    return one.number == run.odd_call && one.code == 0 && (one.empty || one.alone);
  });
}

/// Whether the rank that is blamed had stopped because a call on another communicator failed.
bool stopped_elsewhere(const CallReport& call) {
  if (call.peer < 0) return false;
  const RankReport& blamed = world->reports[peer_in_whole(call)];
  const int last = blamed.call_count - 1;
  return last >= 0 && blamed.calls[last].code != 0 && blamed.calls[last].part != call.part &&
         blamed.calls[last].end < call.end;
}

/// Whether the error names what a fault has hit, as far as anybody can know that.
bool blames_rightly(int rank, const CallReport& call) {
  const bool joining = &call == &world->reports[rank].join;
  const auto code = static_cast<Code>(call.code);
  if (world->parameters.recovers && code == Code::kRevoked) return true;
  if (is_blamed(peer_in_whole(call)) || is_blamed(rank) || had_stopped(call)) return true;
  if (world->network_hit) return true;  // Ranks see it from different ends.
  // That rank's window may be shorter than what this one asks for.
  if (code == Code::kInvalidArgument && odd_one_is_ahead(rank, call)) return true;
  // An abort of the whole lets a rank leave the part as well, in which others are.
  if (code == Code::kPeerFailed && stopped_elsewhere(call)) return true;
  // Either rank of two may be the odd one, or is the first that says so.
  if (world->parameters.odd_rank >= 0 && (code == Code::kMismatch || odd_call_is_empty()))
    return true;
  if (code == Code::kTimeout && names_blamed(call.text)) return true;
  // It misses a rank that waits in turn, and does not always see which rank that one misses.
  const auto excused = [&] {
    return joining ? gave_up(call) : waited_as_well(call) || held_up(first_with_verdict_of(call));
  };
  if (code == Code::kTimeout && call.peer >= 0 && excused()) return true;
  // A store that does not answer has no rank, and one that stood still judges those that gave up.
  return joining && (call.peer < 0 || stalled_for(0) != 0);
}

/// The same of a rank that is alive. A call that needs no other rank has no reason to look for dead
/// ones.
bool waits_for_stopped(const CallReport& call) {
  return static_cast<Code>(call.code) == Code::kTimeout && stopped_elsewhere(call);
}

/// Calls that a death or an abort has to end at once, and not by their deadline.
std::string check_haste(int rank, const CallReport& call) {
  const Parameters& run = world->parameters;
  const Time noticed = std::max(call.begin, world->killed_at) + kHaste;
  const bool only_deaths = run.faults.kills != 0 && !world->network_hit && run.loss_one_in == 0;
  const bool joining = &call == &world->reports[rank].join;
  if (only_deaths && !joining && world->killed_at != kNever && call.end > noticed &&
      call.code != 0 && !waits_for_stopped(call))
    return say(rank, call, "it noticed a death too late");
  if (world->aborted_at == kNever || call.ok_begin == 0 || call.part != 0) return {};
  // In shared memory all ranks see it at once; over a network one that has looked at it, as a call
  // that needs nobody and is over at once does not.
  const bool at_once = rank == run.abort_rank || run.shared_memory;
  const Time known = world->aborted_at + (at_once ? 0 : kHaste);
  const bool looks = at_once || !call.alone || call.end - call.ok_begin > kAtOnce;
  if (call.ok_begin > known && looks && !call.empty)
    return say(rank, call, "it is ok after an abort");
  return {};
}

/// Whether the error says why the communicator of all is over.
bool says_end(const CallReport& call) {
  const bool not_started = static_cast<Code>(call.code) == Code::kSystem && call.peer < 0;
  return call.code != 0 && call.part == 0 && !call.splits && !not_started;
}

/// One verdict: what all ranks that are left say of the communicator of all.
/// - If one rank has been killed, and nothing else has failed, each says that this rank has failed.
///   A host that vanishes closes nothing: then a deadline may come first, and blame a rank that
///   waits in turn.
/// - If a rank aborts, each says so, and names it.
/// - Ranks of one host share the word that ends a communicator: whatever the failure, all say the
///   first one's code and peer. In a mismatch each rank reports its own call. And what keeps a rank
///   from starting a call, as that there is no thread, ends nothing and blames nobody.
std::string check_verdict(int rank, const CallReport& call) {
  const Parameters& run = world->parameters;
  if (!says_end(call)) return {};
  const auto code = static_cast<Code>(call.code);
  const bool only_death = run.faults.kills == 1 && world->killed_at != kNever;
  if (only_death && call.end > world->killed_at) {
    const bool named = is_blamed(call.peer) || had_stopped(call);
    const bool late = run.faults.kill_host && code == Code::kTimeout;
    const bool right = (named && (late || code == Code::kPeerFailed)) ||
                       (late && call.peer >= 0 && waited_as_well(call)) || waits_for_stopped(call);
    const bool told = run.recovers && code == Code::kRevoked;  // By a rank that shrinks.
    if (!told && !right) return say(rank, call, "it does not name the rank that was killed");
  }
  if (run.abort_rank >= 0 && run.faults.stall_for == 0 &&
      (code != Code::kAborted || call.peer != run.abort_rank))
    return say(rank, call, "it does not name the rank that aborted");
  const auto differs = [](const CallReport& one) {
    return static_cast<Code>(one.code) == Code::kMismatch;
  };
  if (!run.shared_memory || differs(call)) return {};
  for (int other = 0; other < rank; ++other) {
    const RankReport& report = world->reports[other];
    for (int i = 0; i < report.call_count && !world->processes[other].killed; ++i) {
      const CallReport& theirs = report.calls[i];
      if (!says_end(theirs) || differs(theirs)) continue;
      if (theirs.code != call.code || theirs.peer != call.peer)
        return say(rank, call, "it says something else than another rank") + "; " +
               say(other, theirs, "the other one");
    }
  }
  return {};
}

std::string check(int rank, const CallReport& call) {
  const Parameters& run = world->parameters;
  const Time deadline = static_cast<Time>(run.timeout_ms) * kMilli;
  if (!call.done) return say(rank, call, "it has not returned");
  // Data between hosts have no proof of their sender (SECURITY.md): whatever changes packets can
  // change results, and what is written where in the region; but nothing else.
  if (call.wrong && rank != run.odd_rank && !world->data_hit && !odd_one_is_ahead(rank, call))
    return say(rank, call, "it is ok, but the result is wrong");
  if (call.code != 0 && (call.text[0] == 0 || std::strchr(call.text, '\n') != nullptr))
    return say(rank, call, "its error is not one line");
  if (call.peer < -1 || peer_in_whole(call) >= run.ranks)
    return say(rank, call, "it blames a rank that there is not");
  const bool warns = std::string_view(call.text).find("may still write") != std::string_view::npos;
  if (call.touched && !warns && !world->data_hit)
    return say(rank, call, "its buffer changed after the error");
  const bool joining = &call == &world->reports[rank].join;
  const Time most = joining        ? 3 * deadline + kJoinSlack
                    : call.starved ? deadline + kSlack
                                   : 2 * deadline + kSlack;
  if (call.end - call.begin > most + stalled_for(rank))
    return say(rank, call, "it took longer than the deadline allows");
  if (call.code != 0 && !any_fault()) return say(rank, call, "it failed though nothing has");
  if (call.code != 0 && !blames_rightly(rank, call))
    return say(rank, call, "it blames a rank that did nothing");
  if (auto broken = check_haste(rank, call); !broken.empty()) return broken;
  return &call == &world->reports[rank].join ? std::string() : check_verdict(rank, call);
}

}  // namespace

std::string broken_promise() {
  for (int rank = 0; rank < world->parameters.ranks; ++rank) {
    const RankReport& report = world->reports[rank];
    const bool killed = world->processes[rank].killed;
    if (killed) continue;
    if (report.children_went_on < report.forks &&
        world->now > world->processes[rank].forked_at + kSecond)
      return "rank " + std::to_string(rank) + "'s child hangs in its first use of the library";
    if (!report.finished) return "rank " + std::to_string(rank) + " did not come to its end";
    // The store's connection with a host that has vanished ends by TCP's probes, which the virtual
    // network does not send.
    const Faults& faults = world->parameters.faults;
    if (report.leaks[0] != 0 && !faults.kill_host && faults.cut_for != kNever)
      return "rank " + std::to_string(rank) + " has left, and holds " + report.leaks;
    if (auto broken = check(rank, report.join); !broken.empty()) return broken;
    for (int i = 0; i < report.call_count; ++i) {
      if (auto broken = check(rank, report.calls[i]); !broken.empty()) return broken;
    }
  }
  return broken_recovery();
}

}  // namespace tutti::virt
