// File: exec/adapt/adapting.h: all that changes at run time how calls are executed. One setting,
// TUTTI_ADAPT, turns all of it off: then equal calls are executed alike, from the first on.
#pragma once
#include <string>

#include "exec/adapt/cpu_balancer.h"
#include "exec/adapt/eager_limits.h"
#include "exec/adapt/plan_trials.h"
#include "exec/adapt/slot_stores.h"

namespace tutti::exec {

struct Adapting {
  bool on;
  EagerLimits eager_limits;
  PlanTrials plan_trials;
  SlotStores slot_stores;
  CpuBalancer cpus;

  /// A line each. Any thread.
  std::string describe() const {
    return std::string("adapting: ") + (on ? "on" : "off") +
           "\ntrials: " + std::to_string(plan_trials.tried()) +
           " plans tried where none was known to be best\neager limits: " +
           (eager_limits.lately_mapped() ? "of buffers that all ranks can map"
                                         : "of buffers that some rank can't map") +
           ", as in the last calls\nslots: written " +
           (slot_stores.usual() ? "past the cache" : "through the cache") +
           ", as was faster lately\nCPUs: this rank was moved " + std::to_string(cpus.moves()) +
           " times, off CPUs with more ranks than others\n";
  }
};

}  // namespace tutti::exec
