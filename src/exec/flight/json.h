// File: exec/flight/json.h: a rank's calls as JSON, for people, for programs, and to be read back:
// by `tutti status --merge`, on another host or later.
#pragma once

#include "base/json.h"
#include "exec/flight/reader.h"
#include "tutti/result.h"

namespace tutti::exec::flight {

/// A call with its outcome, times, plan and where it waits.
Json to_json(const Seen& seen);
/// All of a track but its totals.
Json to_json(const SeenTrack& track);
/// The track that to_json has written; other members may stand beside it. kInvalidArgument if it is
/// none. Texts are made printable, and numbers are checked.
Result<SeenTrack> track_of(const Json& json);

}  // namespace tutti::exec::flight
