// File: virtual/kernel/faults.h: what goes wrong in a run, and when. All of it follows from
// Parameters::faults and from World::random.
#pragma once

namespace tutti::virt::faults {

/// Called at every point by the holder of the baton; a fault whose time has come happens.
void at_point();
/// At some points a process loses its CPU for a moment. It is no fault: nobody may fail by it.
void preempt();
/// The same before a data step.
void at_step();
/// Whether a system call that may fail has to fail now. `what` goes into the trace.
bool refuses(const char* what);
/// Whether a signal ends this wait. It is no fault: nobody may fail by it.
bool interrupts();
/// The driver has waited a while for the baton: whether its holder has died. Sets the request.
bool baton_is_lost();

}  // namespace tutti::virt::faults
