#include "tools/status/merge.h"

#include <fmt/format.h>

#include "base/input.h"
#include "base/json.h"
#include "exec/flight/json.h"

namespace tutti::tools {
namespace {

namespace flight = exec::flight;

Result<Json> read_json(const std::string& path) {
  const auto text = read_whole(path);
  if (!text) return Error{Code::kInvalidArgument, text.error().what};
  auto json = Json::parse(*text);
  if (!json)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: it is neither JSON, as tutti status --save and a rank's error "
                             "write it, nor a whole record of a rank",
                             path)};
  return *std::move(json);
}

/// All times of a track, so much later.
void shift(flight::SeenTrack& track, std::int64_t by_ns) {
  const auto move = [by_ns](std::int64_t& ns) {
    if (ns != 0) ns += by_ns;
  };
  move(track.made_ns);
  move(track.seen_ns);
  for (flight::Seen& seen : track.entries) {
    move(seen.begin_ns);
    move(seen.end_ns);
    move(seen.reached_ns);
    move(seen.end_after_ns);
  }
  track.ahead_ns -= by_ns;
}

/// Adds what a file has, with its times as the first one's host would tell them.
void add(Found& found, FoundTrack one) {
  if (!found.tracks.empty())
    shift(one.track, one.track.ahead_ns - found.tracks.front().track.ahead_ns);
  found.now.ns = std::max(found.now.ns, one.track.seen_ns);
  found.tracks.push_back(std::move(one));
}

Status add_json(Found& found, const std::string& path) {
  TUTTI_TRY(Json json, read_json(path));
  if (json.is_object()) json = Json::array({json});  // A rank's, after an error.
  for (const Json& one : json) {
    auto track = flight::track_of(one);
    if (!track)
      return Error{Code::kInvalidArgument, fmt::format("{}: {}", path, track.error().what)};
    const auto pid = static_cast<int>(track->pid & 0x7fffffff);
    add(found, {*std::move(track), pid, flight::printable(one.value("program", "")),
                one.value("stopped", false)});
  }
  return ok();
}

}  // namespace

std::string save(const std::vector<CommStatus>& comms) {
  auto all = Json::array();
  for (const CommStatus& comm : comms) {
    for (const auto& [rank, status] : comm.by_rank) {
      const FoundTrack& one = *status.found;
      Json json = to_json(one.track);
      json["program"] = one.program;
      json["stopped"] = one.stopped;
      json["pid"] = one.pid;
      all.push_back(std::move(json));
    }
  }
  return all.text({.indent = 1}) + "\n";
}

Result<Found> merge(const std::vector<std::string>& files) {
  Found found;
  for (const std::string& path : files) {
    auto killed = read_record(path);
    if (killed.empty()) TUTTI_RETURN_IF_ERROR(add_json(found, path));
    for (flight::SeenTrack& track : killed) {
      const auto pid = static_cast<int>(track.pid & 0x7fffffff);
      add(found, {std::move(track), pid, "", false});
    }
  }
  return found;
}

}  // namespace tutti::tools
