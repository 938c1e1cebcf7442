// File: tools/topo/measure_host.h: what the memory and the links of this host carry, put into its
// graph.
#pragma once
#include <string>

#include "topology/graph/graph.h"
#include "tutti/result.h"
#include "tutti/settings.h"

namespace tutti::tools {

/// Measures on the CPUs that this process may run on, a few seconds, and puts into the graph:
///
///   facts of a NUMA node  `copy_gbs`: what one CPU copies of a peer's data in the cache, GB/s;
///                         `reduce_gbs`: read and written while it adds;
///                         `hop_us`: from one thread to another; `memory_gbs`: what all its CPUs
///                         copy together of memory there
///   socket links          what all CPUs of one node copy of memory of the other, by direction
///   fact of the host      `loopback_gbs`: TCP between two ranks here
///   PCIe links of NICs    what an RDMA device carries in a loop, with RDMA devices alone
///   links of GPUs         what copies reach (gpu_rates.h), where there is CUDA's driver
///
/// The graph has to be of this host, as the probe makes it. Returns a table for people.
Result<std::string> measure_host(topology::Graph& graph, const Settings& settings);

}  // namespace tutti::tools
