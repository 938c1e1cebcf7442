// File: cuda/comm/host_graph.h: where ranks get the graphs of their hosts from, when they join: the
// lowest rank of each host reads or probes it. Then hosts tell each other, so that all choose
// alike: first a hash of the graph, then, of hosts that are alike, one the graph. What differs
// between hosts of one make (names, addresses of networks, serial numbers) is left out before.
//
// Ranks that share one device do without.
#pragma once
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/links.h"
#include "tutti/result.h"

namespace tutti {

/// This rank's host, or several, with all that is known of them.
struct MachineGraph {
  topology::Graph graph;
  bool of_file = false;  // It is what the file of the setting says; else the host was probed.
};
/// From the file of the setting `topology`, or by a probe. A file of NCCL is completed by a probe;
/// one of another host, by its PCI addresses, is not used, and a warning says so.
/// kInvalidArgument: the file can't be read.
Result<MachineGraph> machine_graph(const DeviceRank& self, const std::vector<DeviceInfo>& all);

/// Sets the rank's topology and, if plans can be chosen by it, the machine's graph; all else of the
/// machine has to be known. What cannot be probed is no error, a file that cannot be read is one.
/// `known`: of a communicator that has these ranks and more. Collective.
Status learn_graph(DeviceRank& self, const std::vector<DeviceInfo>& all, const HostGraph& known);

}  // namespace tutti
