// File: tools/spawn.h: starts one rank as a process.
//
// A rank leads a process group of its own, so that it and whatever it starts can be signalled
// together, and dies with the launcher, whatever way that dies.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "tutti/result.h"

namespace tutti::tools {

struct Job {
  std::vector<std::string> program;  // And its arguments.
  int rank_count = 1;
  std::string directory;  // Where the ranks meet.
  std::string name;
  int master_port = 0;  // For programs that use torch.distributed beside Tutti.
  sigset_t signals{};   // The mask that ranks start with.
};

struct RankProcess {
  pid_t pid = -1;
  Fd output, errors;  // What it writes.
};

/// Starts it; `input` becomes its standard input. Returns once the program runs; kSystem, with the
/// reason, if it can't be started. To be called by the thread that lives longest: the rank dies
/// with that thread.
Result<RankProcess> start_rank(const Job& job, int rank, int input);

}  // namespace tutti::tools
