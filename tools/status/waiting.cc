#include "tools/status/waiting.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::tools {
namespace {

using exec::flight::Seen;

// A message that was posted just now is not yet waited for.
constexpr std::int64_t kLongMessageNs = 50'000'000;
// A device may be behind by so much because of other work.
constexpr std::int64_t kLongLaunchNs = 1'000'000'000;

/// Whether the kernel of a call of a device has said that it waits.
bool begun(const Seen& seen) { return seen.state.at == exec::flight::At::kBegun; }

/// Since when a rank is in a call, or in a message. A device may come to it long after its launch.
std::int64_t since_of(const Seen& seen) {
  return seen.reached_ns != 0 ? seen.reached_ns : seen.begin_ns;
}

RankStatus status_of(const FoundTrack& found, std::int64_t now_ns) {
  RankStatus rank{.found = &found};
  for (const Seen& seen : found.track.entries) {
    if (seen.message()) continue;
    rank.made = seen.call;
    // Devices have several on the way: the first that is not over.
    if (rank.last_call == nullptr || !rank.last_call->running()) rank.last_call = &seen;
  }
  for (const Seen& seen : found.track.entries) {
    if (!seen.message() || !seen.running()) continue;
    // Where several share a launch, the one in which a kernel says that it waits.
    if (rank.message == nullptr || (begun(seen) && !begun(*rank.message))) rank.message = &seen;
  }
  rank.in_call = rank.last_call != nullptr && rank.last_call->running();
  // A device makes calls and messages in their order: a call behind a message has not begun.
  if (rank.in_call && exec::flight::of_device(rank.last_call->state.at) &&
      rank.message != nullptr && rank.message->number < rank.last_call->number)
    rank.in_call = false;
  if (rank.in_call) {
    rank.awaited = rank.last_call->state.awaited;
    rank.since_ns = since_of(*rank.last_call);
  } else if (rank.message != nullptr && now_ns - rank.message->begin_ns > kLongMessageNs) {
    rank.awaited = begun(*rank.message) ? rank.message->state.awaited : rank.message->peer();
    rank.since_ns = since_of(*rank.message);
  }
  // A stopped rank waits for no rank: the rank that it waited for may have come since.
  if (found.stopped) rank.awaited = -1;
  return rank;
}

/// The ranks from `rank` on of which each waits for the next. In a circle it ends before a rank
/// would come again.
std::vector<int> chain_from(const CommStatus& comm, int rank) {
  std::vector<int> chain;
  while (std::find(chain.begin(), chain.end(), rank) == chain.end()) {
    chain.push_back(rank);
    const auto found = comm.by_rank.find(rank);
    if (found == comm.by_rank.end() || found->second.awaited < 0) break;
    rank = found->second.awaited;
  }
  return chain;
}

/// The end of a chain; of a circle, its lowest rank.
int end_of_chain(const CommStatus& comm, int rank) {
  const std::vector<int> chain = chain_from(comm, rank);
  const auto last = comm.by_rank.find(chain.back());
  if (last == comm.by_rank.end() || last->second.awaited < 0) return chain.back();
  return *std::min_element(std::find(chain.begin(), chain.end(), last->second.awaited),
                           chain.end());
}

std::string call_text(const RankStatus& waiting) {
  if (!waiting.in_call) return exec::flight::describe(*waiting.message);
  return fmt::format("call {} ({})", waiting.last_call->call,
                     exec::flight::describe(*waiting.last_call));
}

std::string names(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 8;
  const std::size_t named = std::min(ranks.size(), kMost);
  return fmt::format(
      "{} {}{}", ranks.size() == 1 ? "rank" : "ranks",
      fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "),
      named < ranks.size() ? ", ..." : "");
}

/// What the blocking rank does, or fails to do, for `waiting`, which waits for it.
std::string blocker_text(const CommStatus& comm, const RankStatus& waiting) {
  const std::string name = fmt::format("rank {}", comm.blocker);
  const auto found = comm.by_rank.find(comm.blocker);
  if (found == comm.by_rank.end()) {
    const bool here = comm.any().track.local_ranks == comm.ranks;
    return name + (here ? " has no process any more" : " has no process on this host");
  }
  const RankStatus& blocker = found->second;
  if (blocker.found->stopped)
    return fmt::format("{} is stopped by a signal or a debugger (pid {}), before the end of {}",
                       name, blocker.found->pid, call_text(waiting));
  if (blocker.awaited >= 0)
    return fmt::format("{} waits for rank {} in {}", name, blocker.awaited, call_text(blocker));
  if (!waiting.in_call) return fmt::format("{} has not answered {}", name, call_text(waiting));
  const std::uint64_t call = waiting.last_call->call;
  if (blocker.made < call && !blocker.in_call)
    return fmt::format("{} has not made {}", name, call_text(waiting));
  return fmt::format("{} is in {}", name, blocker.in_call ? call_text(blocker) : "its own code");
}

void find_blocker(CommStatus& comm, std::int64_t now_ns) {
  std::map<int, std::vector<int>> ends;
  for (const auto& [rank, status] : comm.by_rank) {
    if (status.awaited < 0) continue;
    const int end = end_of_chain(comm, rank);
    if (end != rank) ends[end].push_back(rank);
  }
  if (ends.empty()) return;
  const auto most = std::max_element(ends.begin(), ends.end(), [](const auto& a, const auto& b) {
    return a.second.size() < b.second.size();
  });
  comm.blocker = most->first;
  comm.waiting = most->second;
  const RankStatus* direct = nullptr;
  for (const int rank : comm.waiting) {
    const RankStatus& status = comm.by_rank.at(rank);
    if (status.since_ns != 0) comm.waited_ns = std::max(comm.waited_ns, now_ns - status.since_ns);
    if (const auto chain = chain_from(comm, rank); chain.size() > comm.chain.size())
      comm.chain = chain;
    if (status.awaited == comm.blocker && direct == nullptr) direct = &status;
  }
  if (direct == nullptr) direct = &comm.by_rank.at(comm.waiting.front());
  comm.blame = blocker_text(comm, *direct);
  comm.waits = fmt::format("{} {} waited for it for {:.1f} s", names(comm.waiting),
                           comm.waiting.size() == 1 ? "has" : "have",
                           static_cast<double>(comm.waited_ns) / 1e9);
}

/// A kernel that waits says for which rank, but not one that a graph replays, and none that stands
/// behind other work. There, a rank that has launched fewer calls than another has had on its
/// device for so long keeps that one waiting.
void find_late_launches(CommStatus& comm, std::int64_t now_ns) {
  const auto on_device = [](const RankStatus& status) {
    return status.in_call && status.awaited < 0 &&
           exec::flight::of_device(status.last_call->state.at);
  };
  const auto last =
      std::ranges::min_element(comm.by_rank, {}, [](const auto& one) { return one.second.made; });
  for (auto& [rank, status] : comm.by_rank) {
    const bool waits = on_device(status) && now_ns - status.since_ns > kLongLaunchNs;
    if (waits && last->second.made < status.last_call->call) status.awaited = last->first;
  }
}

/// The value below which that share of the values lies; the values get sorted.
std::int64_t quantile(std::vector<std::int64_t>& values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const auto index = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

void find_lateness(CommStatus& comm) {
  using Arrival = std::pair<std::int64_t, int>;            // When, and which rank.
  std::map<std::uint64_t, std::vector<Arrival>> arrivals;  // By number of the call.
  for (const auto& [rank, status] : comm.by_rank) {
    for (const Seen& seen : status.found->track.entries) {
      // A launch says nothing of when the device comes to it.
      const bool launch = exec::flight::of_device(seen.state.at);
      if (!seen.message() && seen.begin_ns != 0 && !launch)
        arrivals[seen.call].emplace_back(seen.begin_ns, rank);
    }
  }
  std::map<int, std::vector<std::int64_t>> behind;
  std::int64_t lost_ns = 0;
  for (auto& [number, call] : arrivals) {
    if (call.size() < 2 || call.size() != comm.by_rank.size()) continue;
    ++comm.compared;
    std::ranges::sort(call);
    for (const auto& [begin_ns, rank] : call) behind[rank].push_back(begin_ns - call.front().first);
    Lateness& late = comm.lateness[call.back().second];
    ++late.last;
    late.lost_ns += call.back().first - call.front().first;
    lost_ns += call.back().first - call.front().first;
  }
  for (auto& [rank, values] : behind) {
    Lateness& late = comm.lateness[rank];
    late.median_ns = quantile(values, 0.5);
    late.percentile_99 = quantile(values, 0.99);
    if (lost_ns > 0) late.share = static_cast<double>(late.lost_ns) / static_cast<double>(lost_ns);
  }
}

bool is_wanted(const FoundTrack& one, const std::vector<std::string>& only) {
  return only.empty() || std::ranges::any_of(only, [&](const std::string& name) {
           // Behind a "-": what `tutti run` adds, to tell its jobs of one name apart.
           return name == std::to_string(one.pid) || name == one.track.job ||
                  one.track.job.starts_with(name + "-");
         });
}

}  // namespace

std::vector<CommStatus> find_waiting(const Found& found) {
  std::map<std::array<std::uint64_t, 2>, CommStatus> by_name;
  for (const FoundTrack& one : found.tracks) {
    CommStatus& comm = by_name[one.track.communicator];
    comm.ranks = std::max(comm.ranks, one.track.ranks);
    comm.by_rank[one.track.rank] = status_of(one, found.now.ns);
  }
  std::vector<CommStatus> comms;
  for (auto& [name, comm] : by_name) {
    find_late_launches(comm, found.now.ns);
    find_blocker(comm, found.now.ns);
    find_lateness(comm);
    comms.push_back(std::move(comm));
  }
  std::stable_sort(comms.begin(), comms.end(), [](const CommStatus& a, const CommStatus& b) {
    return a.any().track.made_ns < b.any().track.made_ns;
  });
  return comms;
}

void keep_wanted(std::vector<CommStatus>& comms, const std::vector<std::string>& only) {
  std::erase_if(comms, [&](const CommStatus& comm) {
    return std::ranges::none_of(
        comm.by_rank, [&](const auto& rank) { return is_wanted(*rank.second.found, only); });
  });
}

}  // namespace tutti::tools
