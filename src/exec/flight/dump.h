// File: exec/flight/dump.h: writes the flight record of a rank whose communicator has failed.
#pragma once
#include "exec/flight/recorder.h"
#include "transport/region.h"
#include "tutti/result.h"

namespace tutti::exec::flight {

/// Writes the record, and the error that ended the communicator, as JSON into the folder that
/// `recorder` was given; without one, a line of the log says how to get it. The file also has the
/// latest calls of the ranks whose sections `region` has: they are all there is of a rank that was
/// killed. Never throws: what fails is logged.
void write_record(const Recorder& recorder, const Region& region) noexcept;

}  // namespace tutti::exec::flight
