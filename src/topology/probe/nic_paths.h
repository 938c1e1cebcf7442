// File: topology/probe/nic_paths.h: how near network devices are to what a rank uses: a GPU, or the
// NUMA nodes of its CPUs.
//
// The class of the path counts first (topology/graph/paths.h), then how often it crosses between
// sockets, then its narrowest link. From CPUs that counts which is next to the nearest device.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/cpus.h"
#include "base/nic_path.h"
#include "topology/graph/graph.h"

namespace tutti::topology {

/// What a rank uses.
struct Place {
  std::string gpu;  // Its PCI address; empty: none.
  CpuSet cpus{};    // Counts without a GPU.
};

/// By place and by RDMA device ("mlx5_0", or a port, "mlx5_0:1"). A place that the graph does not
/// show has all distances 0; a device that it does not show, or that is software, is the farthest.
std::vector<std::vector<NicPath>> nic_paths(const Graph& graph, std::span<const Place> places,
                                            std::span<const std::string> nics);

}  // namespace tutti::topology
