// File: support/topology/device_machines.h: the GPUs of a graph as what communicators of devices
// choose plans from, as if CUDA had been asked there.
#pragma once
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/comm/graph_costs.h"
#include "topology/embedding/routes.h"

namespace tutti::test {

/// GPUs without an address get one.
inline std::vector<std::string> give_buses(topology::Graph& graph) {
  std::vector<std::string> buses;
  for (const topology::NodeId gpu : graph.all(topology::NodeKind::kGpu)) {
    std::string& bus = graph[gpu].bus;
    char made[32];
    std::snprintf(made, sizeof made, "0fff:%02zx:00.0", buses.size());
    if (bus.empty()) bus = made;
    buses.push_back(bus);
  }
  return buses;
}

/// A rank for each GPU; all reach each other, over NVLink where that leads there, with the rate of
/// NVLinks that join just two. Without the graph.
inline planner::DeviceMachine device_machine(const topology::Graph& graph) {
  planner::DeviceMachine machine;
  machine.lanes = 16;
  topology::Router router(graph);
  const auto gpus = graph.all(topology::NodeKind::kGpu);
  for (const topology::NodeId gpu : gpus) {
    machine.device_of.push_back(static_cast<int>(machine.device_of.size()));
    for (const topology::NodeId peer : gpus) {
      const bool fast = router.hop(gpu, peer, topology::Over::kFast).has_value();
      machine.links.push_back(gpu == peer ? planner::DeviceLink::kSame
                              : fast      ? planner::DeviceLink::kNvlink
                                          : planner::DeviceLink::kPcie);
    }
  }
  machine.direct.resize(machine.links.size());
  for (const topology::Link& link : graph.links) {
    const auto place = [&](topology::NodeId node) {
      return static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), node) - gpus.begin());
    };
    const std::size_t a = place(link.a), b = place(link.b), n = gpus.size();
    if (!is_fast(link.kind) || a == n || b == n) continue;
    machine.direct[a * n + b] = link.forward.value;
    machine.direct[b * n + a] = link.backward.value;
  }
  return machine;
}

/// The same with the graph; an error as of graph_costs.
inline Result<planner::DeviceMachine> with_graph(planner::DeviceMachine machine,
                                                 topology::Graph graph) {
  const auto buses = give_buses(graph);
  TUTTI_TRY(auto costs,
            planner::graph_costs(std::make_shared<const topology::Graph>(std::move(graph)),
                                 "topology of a test", machine, buses));
  machine.graph = std::make_shared<const planner::GraphCosts>(std::move(costs));
  return machine;
}

}  // namespace tutti::test
