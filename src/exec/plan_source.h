// File: exec/plan_source.h: where an executor gets its plans from. A communicator implements it
// over the planner, which the executor does not know.
#pragma once
#include <cstddef>

#include "exec/calls/call.h"
#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::exec {

/// A plan, and how many there are to try: more than one where none is known to be best.
struct PlanChoice {
  const plan::Plan* plan = nullptr;  // Verified; lives as long as the process.
  std::size_t plans = 1;
  double predicted_us = 0;  // The first plan's time; 0: unknown, so all are compared.
};

class PlanSource {
 public:
  virtual ~PlanSource() = default;
  /// The plan for a call, by how ranks access each other's buffers; alike on all ranks. `which`
  /// counts the plans that may be tried, the most promising first. Not called on the eager path.
  virtual Result<PlanChoice> choose(const Call& call, Access access, std::size_t which) const = 0;
};

}  // namespace tutti::exec
