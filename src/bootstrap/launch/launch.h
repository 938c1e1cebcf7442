// File: bootstrap/launch/launch.h: pieces of what launchers say, on their own so that they can be
// tested.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/result.h"

namespace tutti::bootstrap {

/// The first host of Slurm's compressed list: "node01" of "node[01-04,07],login1".
std::string first_host(std::string_view slurm_list);

/// How many tasks the node of that index has, of Slurm's "2(x3),1"; empty if the list does not say.
std::optional<int> tasks_of_node(std::string_view slurm_counts, int node);

/// "host:port" or "[IPv6]:port".
std::optional<std::pair<std::string, int>> parse_host_port(std::string_view text);

/// `text`, or its beginning and a hash of it all where it is longer than 64 bytes.
std::string shorten(const std::string& text);

/// TUTTI_SECRET, or empty.
std::string secret_of_environment();

/// The name that the user gives to a job, for its launcher: TUTTI_JOB. Nothing in a rank, where
/// TUTTI_JOB names the job that the rank belongs to.
std::optional<std::string> job_of_environment();

/// Names a process so that no later one has the same name: its id and when it started. Empty if the
/// system does not show it.
struct ProcessName {
  std::string command;
  std::string name;
  int parent = 0;
};
std::optional<ProcessName> name_process(int pid);

}  // namespace tutti::bootstrap
