// File: tools/run/simulated.h: GPUs that are pretended, for the programs that `tutti run` starts.
#pragma once
#include <string>

#include "tutti/result.h"

namespace tutti::tools {

struct SimulatedGpus {
  int count = 0;                     // 0: none are asked for.
  std::string machine = "hgx-h100";  // A model or a file of the topology.
};

/// Sets this process's environment so that programs it starts find simulated GPUs: the folder of
/// their libraries first in LD_LIBRARY_PATH, and what is pretended in SIMT_MACHINE and
/// SIMT_DEVICES. Returns the line that says so. kInvalidArgument: there is no such machine, or it
/// has fewer GPUs; kUnsupported: this build has no such libraries.
Result<std::string> simulate_gpus(const SimulatedGpus& wanted);

}  // namespace tutti::tools
