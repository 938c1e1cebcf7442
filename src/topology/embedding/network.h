// File: topology/embedding/network.h: the part of a machine that lies between some endpoints, as
// the small network that trees are packed in.
//
// Dead ends are left out, as are other GPUs, which run nothing that could pass data on. Switches
// side by side (the same neighbours, links in the same proportions) become one: to use each by its
// share is as good as any other way to use them.
#pragma once
#include <span>

#include "topology/embedding/routes.h"
#include "topology/embedding/split.h"

namespace tutti::topology {

struct EndpointNetwork {
  SwitchedNetwork network;    // Capacities in KB/s; place i is endpoint i.
  std::vector<Route> routes;  // By arc: what it is made of.
};

/// Links of unknown bandwidth are taken as wider than all others together.
EndpointNetwork endpoint_network(const Graph& graph, std::span<const NodeId> endpoints, Over over);

}  // namespace tutti::topology
