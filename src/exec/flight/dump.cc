#include "exec/flight/dump.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/wall.h"
#include "exec/calls/call.h"
#include "exec/flight/json.h"

namespace tutti::exec::flight {
namespace {

/// The latest calls of a rank, by the record that all ranks of a communicator share.
Json calls_of(const CallRecord& record) {
  auto calls = Json::array();
  // acquire: pairs with the release in go_on.
  const std::uint64_t latest = record.number.load(std::memory_order_acquire);
  for (std::uint64_t number = latest > kCalls ? latest - kCalls + 1 : 1; number <= latest;
       ++number) {
    const auto call = record.look_up(number);
    if (call) calls.push_back({{"call", number}, {"what", describe_call(call->what, call->count)}});
  }
  return calls;
}

Status write(const Recorder& recorder, const Region& region) {
  const Error error = region.abort_error();
  const auto track = read_own(recorder);
  if (!track) return Error{Code::kInternal, "flight record: it can't be read"};
  Json json{{"error", error.what},
            {"code", to_string(error.code)},
            {"reported_by", error.rank.value},
            {"blamed", error.peer.value}};
  json.update(to_json(*track));
  json["peers"] = Json::array();
  for (int rank = 0; rank < track->ranks; ++rank) {
    if (rank == track->rank) continue;
    json["peers"].push_back({{"rank", rank}, {"calls", calls_of(region.record(rank))}});
  }
  const std::string path =
      fmt::format("{}/flight-{:016x}-rank{}.json", recorder.folder(),
                  track->communicator[0] ^ track->communicator[1], track->rank);
  TUTTI_RETURN_IF_ERROR(write_file(path, json.text({.indent = 1}) + "\n"));
  log::warn(log::Part::kCalls, "rank {}: its latest calls are in {}", track->rank, path);
  return ok();
}

}  // namespace

void write_record(const Recorder& recorder, const Region& region) noexcept {
  const Status status = walled("flight record", [&]() -> Status {
    if (!recorder.folder().empty()) return write(recorder, region);
    log::info(log::Part::kCalls,
              "TUTTI_FLIGHT=FOLDER writes the latest calls of each rank there at an error");
    return ok();
  });
  if (status) return;
  (void)walled("flight record", [&] {
    log::error(log::Part::kCalls, "{}", status.error().to_string());
    return ok();
  });
}

}  // namespace tutti::exec::flight
