// File: exec/flight/trace_file.h: the file TUTTI_TRACE, into which each rank writes its calls when
// its communicator ends.
//
// The file is a JSON array of events, one a line, and complete after each write. Ranks write one
// after another, under flock. A rank's events stand behind a line that says whose they are and how
// many bytes they have, so that a reader hops from rank to rank. The last rank of a communicator
// reads the others' events and adds the arrows between them. A file that is older than this process
// is of an earlier run and is replaced.
#pragma once
#include <memory>
#include <span>
#include <string>

#include "exec/flight/reader.h"
#include "exec/flight/spans.h"

namespace tutti::exec::flight {

/// Adds a rank's calls and the program's rows to the file. Never throws: what fails is logged. Any
/// thread.
void add_to_trace(const SeenTrack& track, std::span<const std::shared_ptr<Spans::Buffer>> rows,
                  const std::string& path) noexcept;

/// A forked child begins: files that its parent has written are of an earlier run.
void begin_traces_anew();

}  // namespace tutti::exec::flight
