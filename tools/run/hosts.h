// File: tools/run/hosts.h: ranks on several hosts (`tutti run --hosts`).
//
// On each host the launcher runs `tutti agent`, by ssh or what is used in its place. The agent is
// the same supervisor as that of a local run; the one here supervises agents. All that an agent has
// to know, including the secret of the ranks' rendezvous, comes through its standard input, never
// on a command line, which others may read:
//
//   a line of JSON: version, directory, environment, program, the job; then lines with the numbers
//   of signals for its ranks; at the end of the input it kills them
//
// Ranks meet at the first host, as under other launchers (bootstrap/launch/launch_rendezvous.cc).
#pragma once
#include <string>
#include <vector>

#include "bootstrap/launch/launch_hosts.h"
#include "tools/run/spawn.h"

namespace tutti::tools {

struct HostsRun {
  std::vector<bootstrap::HostSlots> hosts;  // Each with its ranks.
  std::vector<std::string> rsh;             // "ssh" and its options; the host's name follows.
  std::string command;                      // `tutti` on those hosts.
  double grace_seconds = 5.0;
  Job job;  // Its rank counts are filled in.
};

/// Agents to be supervised. kInvalidArgument: what can't be passed through a remote shell.
Result<std::vector<Child>> agents_of(const HostsRun& run);

}  // namespace tutti::tools
