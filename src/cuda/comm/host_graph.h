// File: cuda/comm/host_graph.h: where ranks on one host get the graph of that host from, when they
// join: rank 0 reads or probes it and tells the others, so that all choose alike.
//
// Several hosts, and ranks that share one device, do without.
#pragma once
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/links.h"
#include "tutti/result.h"

namespace tutti {

/// Sets the rank's topology and, if plans can be chosen by it, the machine's graph; devices and
/// links have to be known. What cannot be probed is no error, a file that cannot be read is one.
/// `known`: of a communicator that has these ranks and more. Collective.
Status learn_graph(DeviceRank& self, const std::vector<DeviceInfo>& all, const HostGraph& known);

}  // namespace tutti
