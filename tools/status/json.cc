#include "tools/status/json.h"

#include <fmt/format.h>

#include <numeric>

#include "base/json.h"
#include "exec/flight/json.h"

namespace tutti::tools {

namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// Since the communicator was made. A reader that looks twice has the rates between.
Json totals_json(const exec::flight::SeenTotals& totals) {
  const auto sum = [](const auto& all) {
    return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  };
  return {{"calls", sum(totals.calls)},
          {"bytes", sum(totals.bytes)},
          {"messages", totals.messages},
          {"message_bytes", totals.message_bytes}};
}

}  // namespace

std::string last_text(const RankStatus& rank) {
  if (rank.message != nullptr && !rank.in_call) return exec::flight::describe(*rank.message);
  return rank.last_call == nullptr ? "" : exec::flight::describe(*rank.last_call);
}

std::string state_text(const RankStatus& rank, std::int64_t now_ns) {
  if (rank.found->stopped) return "stopped";
  const std::string age =
      rank.since_ns == 0 ? "" : fmt::format(", {:.1f} s", seconds(now_ns - rank.since_ns));
  if (rank.awaited >= 0) return fmt::format("waits for {}{}", rank.awaited, age);
  if (rank.in_call && exec::flight::of_device(rank.last_call->state.at))
    return std::string(exec::flight::to_string(rank.last_call->state.at)) + age;
  if (rank.in_call) return "in it" + age;
  if (rank.last_call == nullptr) return "no call yet";
  const exec::flight::State& state = rank.last_call->state;
  const bool failed = state.outcome >= static_cast<std::uint8_t>(exec::flight::Outcome::kFailed);
  return std::string(exec::flight::outcome_name(state)) +
         (failed && state.awaited >= 0 ? fmt::format(", waited for {}", state.awaited) : "");
}

Json to_json(const CommStatus& comm, std::int64_t now_ns, bool calls) {
  const exec::flight::SeenTrack& track = comm.any().track;
  Json json{
      {"communicator", fmt::format("{:016x}{:016x}", track.communicator[0], track.communicator[1])},
      {"job", track.job},
      {"host", track.host},
      {"transport", track.transport},
      {"ranks", comm.ranks},
      {"here", Json::array()}};
  for (const auto& [number, rank] : comm.by_rank) {
    Json one{{"rank", number},
             {"pid", rank.found->pid},
             {"program", rank.found->program},
             {"stopped", rank.found->stopped}};
    one["call"] = rank.last_call == nullptr ? 0 : rank.last_call->call;
    one["what"] = last_text(rank);
    one["state"] = state_text(rank, now_ns);
    one["in_call"] = rank.in_call;
    if (rank.in_call) one["at"] = exec::flight::to_string(rank.last_call->state.at);
    if (rank.in_call) one["tile"] = rank.last_call->state.tile;
    if (rank.awaited >= 0) one["waits_for"] = rank.awaited;
    if (rank.since_ns != 0) one["seconds"] = seconds(now_ns - rank.since_ns);
    one["totals"] = totals_json(rank.found->track.totals);
    for (const exec::flight::Seen& seen : rank.found->track.entries) {
      if (calls) one["calls"].push_back(to_json(seen));
    }
    json["here"].push_back(std::move(one));
  }
  if (comm.blocker >= 0) {
    json["blocker"] = comm.blocker;
    json["waiting"] = comm.waiting;
    json["waited_s"] = seconds(comm.waited_ns);
    json["chain"] = comm.chain;
    json["sentence"] = comm.blame + "; " + comm.waits;
  }
  if (comm.compared > 0) json["timed_calls"] = comm.compared;
  for (const auto& [rank, late] : comm.lateness)
    json["late"].push_back({{"rank", rank},
                            {"calls", late.last},
                            {"lost_s", seconds(late.lost_ns)},
                            {"share", late.share},
                            {"median_s", seconds(late.median_ns)},
                            {"p99_s", seconds(late.percentile_99)}});
  return json;
}

}  // namespace tutti::tools
