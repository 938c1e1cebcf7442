// File: tools/run/spawn.h: starts ranks, and what starts ranks elsewhere, as processes.
//
// Each leads a process group of its own, so that it and whatever it starts can be signalled
// together, and dies with the launcher, whatever way that dies.
#pragma once
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "tutti/result.h"

namespace tutti::tools {

/// The process to start: a rank, or an agent that starts the ranks of another host.
struct Child {
  std::string name;                  // "rank 3", "host node7".
  std::string prefix;                // Before each of its lines; empty: they are passed on raw.
  int rank = -1;                     // -1: it is an agent.
  std::vector<std::string> program;  // And its arguments.
  std::vector<std::string> environment;
  /// An agent reads this from its standard input, and then what to pass on to its ranks
  /// (hosts.h); empty: it is none.
  std::string orders;
};

/// The ranks of a job that one host has.
struct Job {
  std::vector<std::string> program;  // And its arguments.
  int rank_count = 1;                // In the whole job.
  int first_rank = 0;                // The first of this host's ranks,
  int local_rank_count = 1;          // which are so many.
  std::string rendezvous;            // Where the ranks meet; empty: at the master's address.
  std::string name;
  std::string secret;  // The ranks' TUTTI_SECRET: in their environment, on no command line.
  std::string master_address = "127.0.0.1";
  int master_port = 0;  // For programs that use torch.distributed beside Tutti.
  bool prefix = true;   // "[rank] " before each line.
};
std::vector<Child> ranks_of(const Job& job);

struct Pipe {
  Fd read, write;
};
/// No child inherits it.
Result<Pipe> make_pipe();

struct ChildProcess {
  pid_t pid = -1;
  Fd output, errors;  // Its output.
};

/// Starts it; `input` becomes its standard input, `signals` its mask. Returns once the program
/// runs; kSystem, with the reason, if it can't be started. To be called by the thread that lives
/// longest: the child dies with that thread.
Result<ChildProcess> start(const Child& child, int input, const sigset_t& signals);

}  // namespace tutti::tools
