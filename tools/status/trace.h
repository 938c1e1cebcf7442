// File: tools/status/trace.h: recorded calls as a trace.
#pragma once
#include <string>
#include <vector>

#include "tools/status/waiting.h"

namespace tutti::tools {

/// The calls and messages whose begin is known, as JSON for Perfetto and chrome://tracing: a
/// process for each communicator, a thread for the calls of each rank and one for its messages, and
/// an arrow from the rank that came to a call first to each other one.
std::string trace_of(const std::vector<CommStatus>& comms, std::int64_t now_ns);

}  // namespace tutti::tools
