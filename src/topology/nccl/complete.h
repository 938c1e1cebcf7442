// File: topology/nccl/complete.h: what a file of NCCL leaves to the machine that it is read on.
//
// NCCL merges such a file with what it detects, and files of clouds rely on that. Azure's name
// processors, PCI switches and the addresses of devices, but no NVLinks; some of AWS's name no GPU
// at all. The rules here are NCCL's: what the file says holds; attributes that it lacks, NVLinks of
// GPUs that have none in it, and devices that it lacks come from the machine.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// Adds to `file`, a graph of one host that was read from such a file, what `probed`, the graph of
/// that host itself, knows: of what both have (by PCI addresses, and NUMA nodes by their numbers)
/// the facts; GPUs and NICs that `file` lacks, below the nearest that both have. What has no class
/// in the file has that of the probe. No change if `file` has several hosts.
void complete(Graph& file, const Graph& probed);

/// Whether a PCI address of the graph is one of the other graph, or in the list.
bool shares_address(const Graph& graph, const Graph& other, std::span<const std::string> buses);

/// Those of these PCI addresses at which the graph has no GPU.
std::vector<std::string> missing_gpus(const Graph& graph, std::span<const std::string> buses);

}  // namespace tutti::topology
