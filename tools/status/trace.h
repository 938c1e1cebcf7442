// File: tools/status/trace.h: recorded calls as a trace.
#pragma once
#include <string>
#include <vector>

#include "tools/status/waiting.h"

namespace tutti::tools {

/// The calls and messages whose begin is known, as exec/flight/trace.h has them, in one file.
std::string trace_of(const std::vector<CommStatus>& comms, std::int64_t now_ns);

}  // namespace tutti::tools
