#include "exec/flight/trace.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/json.h"
#include "exec/calls/call.h"

namespace tutti::exec::flight {
namespace {

// Threads of messages are numbered from here on, and those of each row of spans from the next
// multiples.
constexpr int kMessages = 1 << 16, kMostRows = 1 << 10;

double micros(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

/// A number for the communicator, alike on all its ranks. A trace has no room for its whole name.
std::uint64_t process_of(const SeenTrack& track) {
  constexpr std::uint64_t kPrime = 999'983;
  return 1 + mix(track.communicator[0] ^ mix(track.communicator[1])) % kPrime;
}

Json name_of(const char* kind, std::uint64_t process, int thread, const std::string& name) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

/// A call or message of a device is shown until the next launch, or until it is known to be over:
/// slices of a thread may not overlap, and calls of devices do.
std::int64_t end_on_device(const std::vector<Seen>& entries, std::size_t index,
                           std::int64_t now_ns) {
  const Seen& seen = entries[index];
  const std::int64_t end_ns = seen.end_ns != 0 ? seen.end_ns : now_ns;
  for (std::size_t next = index + 1; next < entries.size(); ++next) {
    if (entries[next].message() == seen.message() && entries[next].begin_ns != 0)
      return std::min(end_ns, entries[next].begin_ns);
  }
  return end_ns;
}

/// An entry whose end is not known ends where the next begins, or, if it runs, now.
std::int64_t end_of(const std::vector<Seen>& entries, std::size_t index, std::int64_t now_ns) {
  const Seen& seen = entries[index];
  if (of_device(seen.state.at)) return end_on_device(entries, index, now_ns);
  if (seen.end_ns != 0) return seen.end_ns;
  if (seen.running()) return now_ns;
  if (seen.message()) return seen.begin_ns;
  for (std::size_t next = index + 1; next < entries.size(); ++next) {
    if (!entries[next].message())
      return entries[next].begin_ns != 0 ? entries[next].begin_ns : seen.begin_ns;
  }
  return seen.begin_ns;
}

/// How the call went: eagerly, by a plan, or as a round before one in which ranks agree.
const char* path_of(const Seen& seen) {
  if (seen.message()) return "message";
  if ((seen.what & kEager) != 0) return "eager";
  return seen.plan.empty() ? "agrees" : "plan";
}

Json slice(const SeenTrack& track, std::size_t index, std::int64_t now_ns, std::int64_t shift_ns) {
  const Seen& seen = track.entries[index];
  const std::int64_t end_ns = end_of(track.entries, index, now_ns);
  Json args{{"call", seen.call},
            {"rank", track.rank},
            {"bytes", bytes_of(seen)},
            {"path", path_of(seen)},
            {"state", outcome_name(seen.state)}};
  if (!seen.plan.empty()) args["plan"] = seen.plan;
  if (seen.state.awaited >= 0) args["waited_for"] = seen.state.awaited;
  if (seen.end_after_ns != 0) {  // A device's: from its launch.
    args["over_after_us"] = micros(seen.end_after_ns - seen.begin_ns);
    args["over_before_us"] = micros(seen.end_ns - seen.begin_ns);
  }
  return {{"ph", "X"},
          {"name", describe(seen)},
          {"cat", seen.message() ? "message" : "call"},
          {"pid", process_of(track)},
          {"tid", seen.message() ? kMessages + track.rank : track.rank},
          {"ts", micros(seen.begin_ns + shift_ns)},
          {"dur", micros(std::max<std::int64_t>(end_ns - seen.begin_ns, 1))},
          {"args", std::move(args)}};
}

/// A rank's slice of a call.
struct Slice {
  double begin_us = 0, end_us = 0;
  std::int64_t process = 0, rank = 0;
};

double number_in(const Json& event, const char* key) { return event.value(key, 0.0); }

/// By number of the call.
std::map<std::uint64_t, std::vector<Slice>> slices_by_call(const Events& events) {
  std::map<std::uint64_t, std::vector<Slice>> calls;
  for (const Json& event : events) {
    if (!event.is_object() || event["cat"] != "call" || event["ph"] != "X") continue;
    const Json& args = event["args"];
    if (!args.is_object()) continue;
    const double begin_us = number_in(event, "ts");
    calls[static_cast<std::uint64_t>(number_in(args, "call"))].push_back(
        {begin_us, begin_us + number_in(event, "dur"),
         static_cast<std::int64_t>(number_in(event, "pid")),
         static_cast<std::int64_t>(number_in(event, "tid"))});
  }
  return calls;
}

}  // namespace

Events events_of(const SeenTrack& track, std::int64_t now_ns, std::int64_t shift_ns) {
  const std::uint64_t process = process_of(track);
  Events events;
  events.push_back(
      name_of("process_name", process, 0,
              fmt::format("{}: {} ranks, {}{}", track.job.empty() ? "job" : track.job, track.ranks,
                          track.transport, track.devices ? ", for devices" : "")));
  events.push_back(name_of("thread_name", process, track.rank,
                           fmt::format("rank {} ({}:{})", track.rank, track.host, track.pid)));
  const bool messages = std::ranges::any_of(track.entries, &Seen::message);
  if (messages)
    events.push_back(name_of("thread_name", process, kMessages + track.rank,
                             fmt::format("rank {}, messages", track.rank)));
  for (std::size_t at = 0; at < track.entries.size(); ++at) {
    if (track.entries[at].begin_ns != 0) events.push_back(slice(track, at, now_ns, shift_ns));
  }
  return events;
}

Events events_of(const SeenTrack& track, std::size_t index, const SpanRow& row,
                 std::int64_t shift_ns) {
  const std::uint64_t process = process_of(track);
  const int thread = kMessages * (2 + static_cast<int>(index % kMostRows)) + track.rank;
  Events events{
      name_of("thread_name", process, thread, fmt::format("rank {}, {}", track.rank, row.name))};
  for (const SeenSpan& span : row.spans) {
    events.push_back({{"ph", "X"},
                      {"name", span.name},
                      {"cat", "program"},
                      {"pid", process},
                      {"tid", thread},
                      {"ts", micros(span.begin_ns + shift_ns)},
                      {"dur", micros(std::max<std::int64_t>(span.end_ns - span.begin_ns, 0))},
                      {"args", {{"rank", track.rank}}}});
  }
  return events;
}

Events arrows_between(const Events& events) {
  Events arrows;
  for (const auto& [call, slices] : slices_by_call(events)) {
    const auto last = std::ranges::max_element(slices, {}, &Slice::begin_us);
    for (const Slice& other : slices) {
      // It ends within the slice: a nanosecond before that is over. Clocks of hosts may differ.
      const double end_us = other.end_us - 0.001;
      if (other.rank == last->rank || end_us < last->begin_us) continue;
      Json arrow{{"ph", "s"},
                 {"name", "came last"},
                 {"cat", "last"},
                 {"id", fmt::format("{}.{}.{}", last->process, call, other.rank)},
                 {"pid", last->process},
                 {"tid", last->rank},
                 {"ts", last->begin_us}};
      arrows.push_back(arrow);
      arrow["ph"] = "f";
      arrow["bp"] = "e";  // It ends at the slice that encloses it.
      arrow["tid"] = other.rank;
      arrow["ts"] = end_us;
      arrows.push_back(std::move(arrow));
    }
  }
  return arrows;
}

}  // namespace tutti::exec::flight
