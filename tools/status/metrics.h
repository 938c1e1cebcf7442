// File: tools/status/metrics.h: what ranks have done, as text for Prometheus.
#pragma once
#include <string>
#include <vector>

#include "tools/status/waiting.h"

namespace tutti::tools {

/// Counters and gauges of all ranks in the text format of Prometheus. Labels: job, communicator,
/// rank. Names are in docs/operations/diagnosing.md.
std::string metrics_of(const std::vector<CommStatus>& comms, std::int64_t now_ns);

}  // namespace tutti::tools
