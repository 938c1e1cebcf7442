// File: tools/tune/timing.h: what measuring links and ways have in common.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

#include "perf/sweep/noise.h"
#include "planner/tuning_table.h"
#include "tutti/communicator.h"

namespace tutti::tools {

using Clock = std::chrono::steady_clock;

inline double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

using perf::median;

/// The slowest rank's.
inline Result<double> slowest(Communicator& comm, double us) {
  TUTTI_RETURN_IF_ERROR(comm.call({.collective = Collective::kAllReduce,
                                   .input = &us,
                                   .output = &us,
                                   .count = 1,
                                   .type = DataType::kFloat64,
                                   .reduction = ReduceOp::kMax,
                                   .algorithm = planner::kEagerName}));
  return us;
}

/// Microseconds a call, of so many in a row.
inline Result<double> timed(Communicator& comm, const Request& request, int calls) {
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) TUTTI_RETURN_IF_ERROR(comm.call(request));
  return slowest(comm, since_us(start) / calls);
}

}  // namespace tutti::tools
