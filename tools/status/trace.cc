#include "tools/status/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

namespace tutti::tools {
namespace {

using exec::flight::Seen;
using nlohmann::ordered_json;

// Threads of messages are numbered from here on.
constexpr int kMessages = 1 << 16;

double micros(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

ordered_json name_of(const char* kind, std::size_t process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

/// An entry whose end is not known ends where the next begins, or, if it runs, now.
std::int64_t end_of(const std::vector<Seen>& entries, std::size_t index, std::int64_t now_ns) {
  const Seen& seen = entries[index];
  if (seen.end_ns != 0) return seen.end_ns;
  if (seen.running()) return now_ns;
  if (seen.message()) return seen.begin_ns;
  for (std::size_t next = index + 1; next < entries.size(); ++next) {
    if (!entries[next].message())
      return entries[next].begin_ns != 0 ? entries[next].begin_ns : seen.begin_ns;
  }
  return seen.begin_ns;
}

ordered_json slice(const std::vector<Seen>& entries, std::size_t index, std::size_t process,
                   int rank, std::int64_t now_ns) {
  const Seen& seen = entries[index];
  const std::int64_t end_ns = end_of(entries, index, now_ns);
  ordered_json args{{"call", seen.call}, {"state", exec::flight::outcome_name(seen.state)}};
  if (!seen.plan.empty()) args["plan"] = seen.plan;
  if (seen.state.awaited >= 0) args["waited_for"] = seen.state.awaited;
  return {{"ph", "X"},
          {"name", exec::flight::describe(seen)},
          {"pid", process},
          {"tid", seen.message() ? kMessages + rank : rank},
          {"ts", micros(seen.begin_ns)},
          {"dur", micros(std::max<std::int64_t>(end_ns - seen.begin_ns, 1))},
          {"args", std::move(args)}};
}

/// An arrow for each rank that came to a call after the first.
void add_arrows(const CommStatus& comm, std::size_t process, ordered_json& events) {
  std::map<std::uint64_t, std::vector<std::pair<std::int64_t, int>>> calls;  // By number.
  for (const auto& [rank, status] : comm.by_rank) {
    for (const Seen& seen : status.found->track.entries) {
      if (!seen.message() && seen.begin_ns != 0) calls[seen.call].emplace_back(seen.begin_ns, rank);
    }
  }
  for (auto& [call, begins] : calls) {
    std::sort(begins.begin(), begins.end());
    for (std::size_t i = 1; i < begins.size(); ++i) {
      ordered_json arrow{{"ph", "s"},
                         {"name", "call"},
                         {"cat", "call"},
                         {"id", fmt::format("{}.{}.{}", process, call, begins[i].second)},
                         {"pid", process},
                         {"tid", begins[0].second},
                         {"ts", micros(begins[0].first)}};
      events.push_back(arrow);
      arrow["ph"] = "f";
      arrow["bp"] = "e";  // It ends at the slice that encloses it.
      arrow["tid"] = begins[i].second;
      arrow["ts"] = micros(begins[i].first);
      events.push_back(std::move(arrow));
    }
  }
}

}  // namespace

std::string trace_of(const std::vector<CommStatus>& comms, std::int64_t now_ns) {
  auto events = ordered_json::array();
  for (std::size_t i = 0; i < comms.size(); ++i) {
    const std::size_t process = i + 1;
    const exec::flight::SeenTrack& any = comms[i].any().track;
    events.push_back(name_of("process_name", process, 0,
                             fmt::format("{}: {} ranks, {}", any.job.empty() ? "job" : any.job,
                                         comms[i].ranks, any.transport)));
    for (const auto& [rank, status] : comms[i].by_rank) {
      events.push_back(name_of("thread_name", process, rank, fmt::format("rank {}", rank)));
      events.push_back(name_of("thread_name", process, kMessages + rank,
                               fmt::format("rank {}, messages", rank)));
      const std::vector<Seen>& entries = status.found->track.entries;
      for (std::size_t at = 0; at < entries.size(); ++at) {
        if (entries[at].begin_ns != 0) events.push_back(slice(entries, at, process, rank, now_ns));
      }
    }
    add_arrows(comms[i], process, events);
  }
  return ordered_json{{"displayTimeUnit", "ns"}, {"traceEvents", std::move(events)}}.dump() + "\n";
}

}  // namespace tutti::tools
