// What a communicator's flight record says of it, for programs.

#include "base/clock.h"
#include "base/json.h"
#include "comm/state.h"
#include "exec/flight/json.h"

namespace tutti {
namespace {

Counters counters_of(const exec::flight::SeenTrack& track) {
  const exec::flight::SeenTotals& totals = track.totals;
  Counters counters;
  for (std::size_t i = 0; i < counters.collectives.size(); ++i)
    counters.collectives[i] = {totals.calls[i], totals.bytes[i]};
  counters.barriers = totals.calls[exec::flight::kBarrier];
  counters.messages = {totals.messages, totals.message_bytes};
  if (track.made_ns != 0) counters.age = std::chrono::nanoseconds(monotonic_ns() - track.made_ns);
  counters.in_calls = std::chrono::nanoseconds(totals.call_ns);
  for (const auto& wait : totals.waits)
    counters.waits.push_back({wait.calls, std::chrono::nanoseconds(wait.ns)});
  return counters;
}

}  // namespace

Result<Counters> Communicator::counters() const {
  return walled("counters", [&]() -> Result<Counters> {
    TUTTI_RETURN_IF_ERROR(usable("counters"));
    const auto track = exec::flight::read_own(state_->executor->flight());
    if (!track) return Error{Code::kInternal, "counters: the record can't be read", state_->me};
    return counters_of(*track);
  });
}

Result<std::string> Communicator::flight_record() const {
  return walled("flight_record", [&]() -> Result<std::string> {
    TUTTI_RETURN_IF_ERROR(usable("flight_record"));
    const auto track = exec::flight::read_own(state_->executor->flight());
    if (!track)
      return Error{Code::kInternal, "flight_record: the record can't be read", state_->me};
    return to_json(*track).text({.indent = 1});
  });
}

}  // namespace tutti
