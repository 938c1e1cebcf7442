// File: tools/run/supervisor.h: runs ranks of this host, or agents that run those of others, to
// their end.
//
// One thread, one poll: signals come through a descriptor, so nothing interrupts anything.
//   - What ranks write is passed on in whole lines; equal ones of stderr that come at about the
//   same
//     time as one (line_folder.h), if lines have prefixes.
//   - SIGINT, SIGTERM and SIGHUP are passed on to all ranks; a second SIGINT kills them.
//   - When a rank fails, the others are asked to end (SIGTERM), and killed after the grace time;
//     but elastic jobs go on.
//   - A rank's process group is killed once its leader has ended: nothing is left behind.
//   - An agent is no rank: signals for its ranks go to its standard input, as orders. When that
//     ends, because the launcher has, the agent kills its ranks.
#pragma once
#include <chrono>
#include <span>
#include <string_view>

#include "tools/run/spawn.h"

namespace tutti::tools {

struct Supervision {
  std::string_view what = "ranks";           // "hosts", if the children are agents.
  std::chrono::duration<double> grace{5.0};  // From SIGTERM to SIGKILL once a rank has failed.
  bool elastic = false;                      // A rank that fails does not end the others.
  bool takes_orders = false;  // From the standard input: this is an agent. Else rank 0 gets it.
};

/// Starts them and waits for them. The exit code: that of the first one that failed (128 + signal
/// if it was killed), else 0; if they are elastic, 0 once one of them has succeeded; 126 or 127 if
/// the program can't be started, as in a shell.
int supervise(const Supervision& options, std::span<const Child> children);

}  // namespace tutti::tools
