// File: exec/flight/trace.h: recorded calls as events of a trace, for Perfetto and
// chrome://tracing.
//
// A process of the trace is a communicator. It has a thread for the calls of each rank and one for
// the rank's messages, and those of the program's own rows of spans. A call is a slice. An arrow
// goes from the slice of the rank that came to a call last to those of the others, which waited for
// it. All functions are pure.
#pragma once
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "exec/flight/reader.h"
#include "exec/flight/spans.h"

namespace tutti::exec::flight {

using Events = std::vector<Json>;

/// The names of a rank's threads and the calls and messages whose begin is known. `now_ns` ends
/// what still runs; `shift_ns` is added to each time, which is of monotonic_ns.
Events events_of(const SeenTrack& track, std::int64_t now_ns, std::int64_t shift_ns);

/// The rank's row of that index: its name, and its spans.
Events events_of(const SeenTrack& track, std::size_t index, const SpanRow& row,
                 std::int64_t shift_ns);

/// The arrows between events of ranks of one communicator, made by events_of or read from a file:
/// those that have no sense are left out.
Events arrows_between(const Events& events);

}  // namespace tutti::exec::flight
