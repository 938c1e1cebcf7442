// File: topology/probe/probe.h: this machine as a graph, from what its kernel and drivers say.
//
// Each source may be absent without harm to the others: sysfs (PCI, NUMA, network, InfiniBand, KFD)
// and procfs as files below a root; NVML, CUDA and libibverbs as libraries. A note of the graph
// says which sources were there; a finding says what is hidden and what therefore had to be
// guessed. Nothing is measured, and nothing about health is judged: that is for checks, on the
// graph.
//
// To run elsewhere: `capture` saves exactly the files that the probe reads, and what each library
// answered as /tutti/nvml.json and so on, in a tar file; `probe_archive` makes the same graph of
// it. It reads others' saved trees too, such as those of hwloc-gather-topology.
#pragma once
#include <string>

#include "topology/graph/finding.h"
#include "topology/probe/sources/file_tree.h"
#include "tutti/result.h"

namespace tutti::topology {

struct ProbeOptions {
  std::string root = "/";  // Below which sys and proc lie.
  /// The libraries to ask about NVIDIA's GPUs and RDMA devices, only about this machine, so only
  /// where root is "/". "" asks none.
  std::string nvml = "libnvidia-ml.so.1";
  std::string cuda = "libcuda.so.1";
  std::string verbs = "libibverbs.so.1";
};

/// Never fails: of a machine that says nothing it makes a host with one NUMA node, and findings.
Imported probe_machine(const ProbeOptions& options = {});

/// The same of files from anywhere; libraries' answers are its /tutti/*.json if there are any.
Imported probe_tree(const FileTree& files);

/// The machine that this process runs on, from its files alone: no driver is loaded for it. Made
/// once in a process; some milliseconds. Any thread.
const Graph& this_machine();
/// Those files.
const FileTree& files_of_this_machine();
/// For tests: the files that stand for this machine's; null: its own again. While nobody looks.
void use_files(const FileTree* files);

/// The same of a tar file (archive.h). An Error if it can't be read, or has neither sys nor proc.
Result<Imported> probe_archive(const std::string& path);

/// Writes what the probe reads to a tar file; compressed if it ends with bz2 or gz. Contains serial
/// numbers (GUIDs, UUIDs), the host's name and the user's number, but no user data.
Status capture(const ProbeOptions& options, const std::string& path);

}  // namespace tutti::topology
