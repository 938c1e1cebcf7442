#include "exec/flight/json.h"

#include <charconv>

#include <fmt/format.h>

#include "base/json.h"
#include "exec/calls/call.h"

namespace tutti::exec::flight {
namespace {

/// 0 where there is no number.
template <class Number>
Number number_in(const Json& json, const char* key) {
  const Json* found = json.find(key);
  return found != nullptr && found->is_number_integer() ? found->get<Number>() : Number{0};
}

std::string text_in(const Json& json, const char* key) {
  const Json* found = json.find(key);
  return found != nullptr && found->is_string() ? printable(found->get<std::string>()) : "";
}

/// Programs that read JSON may have no whole numbers of 64 bits.
std::string hex(std::uint64_t word) { return fmt::format("{:016x}", word); }

std::uint64_t hex_in(const Json& json, const char* key) {
  const std::string text = text_in(json, key);
  std::uint64_t word = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), word, 16);
  return error == std::errc() && end == text.data() + text.size() ? word : 0;
}

Seen seen_of(const Json& json, int ranks) {
  Seen seen{.number = number_in<std::uint64_t>(json, "number"),
            .call = number_in<std::uint64_t>(json, "call"),
            .what = hex_in(json, "word"),
            .count = number_in<std::uint64_t>(json, "count"),
            .begin_ns = number_in<std::int64_t>(json, "begin_ns"),
            .end_ns = number_in<std::int64_t>(json, "end_ns"),
            .reached_ns = number_in<std::int64_t>(json, "reached_ns"),
            .end_after_ns = number_in<std::int64_t>(json, "end_after_ns"),
            .state = State::of(hex_in(json, "progress")),
            .plan = text_in(json, "plan")};
  make_sound(seen, ranks);
  return seen;
}

}  // namespace

Json to_json(const Seen& seen) {
  Json json{{"call", seen.call},
            {"what", describe(seen)},
            {"state", outcome_name(seen.state)},
            {"name", name_of(seen)},
            {"type", tutti::to_string(static_cast<DataType>(seen.what >> 40 & 0xff))},
            {"count", seen.count}};
  if (seen.message()) json["peer"] = seen.peer();
  if (const auto round = seen.what / kRound % 4; !seen.message() && round != 0)
    json["round"] = round;
  if (seen.begin_ns != 0) json["begin_ns"] = seen.begin_ns;
  if (seen.end_ns != 0) json["end_ns"] = seen.end_ns;
  if (seen.reached_ns != 0) json["reached_ns"] = seen.reached_ns;
  if (seen.end_after_ns != 0) json["end_after_ns"] = seen.end_after_ns;
  if (!seen.plan.empty()) json["plan"] = seen.plan;
  if (seen.running()) json["at"] = to_string(seen.state.at);
  if (seen.running()) json["tile"] = seen.state.tile;
  if (seen.state.awaited >= 0) json["waits_for"] = seen.state.awaited;
  json["number"] = seen.number;
  json["word"] = hex(seen.what);
  json["progress"] = hex(seen.state.packed());
  return json;
}

Json to_json(const SeenTrack& track) {
  Json json{{"job", track.job},
            {"host", track.host},
            {"pid", track.pid},
            {"transport", track.transport},
            {"rank", track.rank},
            {"ranks", track.ranks},
            {"local_ranks", track.local_ranks},
            {"devices", track.devices},
            {"communicator", Json::array({hex(track.communicator[0]), hex(track.communicator[1])})},
            {"made_ns", track.made_ns},
            {"seen_ns", track.seen_ns},
            {"ahead_ns", track.ahead_ns},
            {"calls", Json::array()}};
  for (const Seen& seen : track.entries) json["calls"].push_back(to_json(seen));
  return json;
}

Result<SeenTrack> track_of(const Json& json) {
  const Error none{Code::kInvalidArgument, "it has no record of a rank's calls"};
  if (!json.is_object() || !json.contains("calls") || !json["calls"].is_array()) return none;
  const Json* ids = json.find("communicator");
  if (ids == nullptr || !ids->is_array() || ids->size() != 2) return none;
  SeenTrack track;
  for (std::size_t i = 0; i < 2; ++i) {
    const Json one{{"id", (*ids)[i]}};
    track.communicator[i] = hex_in(one, "id");
  }
  track.pid = number_in<std::uint64_t>(json, "pid");
  const auto ranks = number_in<std::int64_t>(json, "ranks");
  const auto rank = number_in<std::int64_t>(json, "rank");
  if (ranks < 1 || ranks > static_cast<std::int64_t>(kMostRanks) || rank < 0 || rank >= ranks)
    return none;
  track.ranks = static_cast<int>(ranks);
  track.rank = static_cast<int>(rank);
  track.local_ranks = static_cast<int>(
      std::clamp<std::int64_t>(number_in<std::int64_t>(json, "local_ranks"), 1, ranks));
  track.devices = json.value("devices", false);
  track.made_ns = number_in<std::int64_t>(json, "made_ns");
  track.seen_ns = number_in<std::int64_t>(json, "seen_ns");
  track.ahead_ns = number_in<std::int64_t>(json, "ahead_ns");
  track.transport = text_in(json, "transport");
  track.host = text_in(json, "host");
  track.job = text_in(json, "job");
  for (const Json& call : json["calls"]) {
    if (call.is_object()) track.entries.push_back(seen_of(call, track.ranks));
  }
  return track;
}

}  // namespace tutti::exec::flight
