// File: support/topology/device_machines.h: the GPUs of a graph as what communicators of devices
// choose plans from, as if CUDA had been asked there.
#pragma once
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <span>
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

/// Hosts with such graphs, joined by RDMA to and from the devices' memories.
inline planner::DeviceMachine device_machine(std::span<const topology::Graph* const> hosts) {
  planner::DeviceMachine machine;
  std::vector<std::pair<std::size_t, std::size_t>> ranks;  // Its host, and its rank there.
  std::vector<planner::DeviceMachine> parts;
  for (const topology::Graph* host : hosts) {
    parts.push_back(device_machine(*host));
    for (std::size_t rank = 0; rank < parts.back().device_of.size(); ++rank)
      ranks.emplace_back(parts.size() - 1, rank);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [host, place] = ranks[rank];
    machine.device_of.push_back(static_cast<int>(rank));
    machine.hosts.of.push_back(static_cast<int>(host));
    for (const auto& [other, there] : ranks) {
      machine.links.push_back(host == other ? parts[host].link(place, there)
                                            : planner::DeviceLink::kNetwork);
      machine.direct.push_back(host == other ? parts[host].direct_rate(place, there) : 0);
    }
  }
  const std::size_t size = parts.front().device_of.size();
  const bool alike = std::all_of(parts.begin(), parts.end(),
                                 [&](const auto& part) { return part.device_of.size() == size; });
  if (alike) machine.groups = static_cast<int>(size);
  machine.lanes = 16;
  machine.hosts.cost = {.link = {2, 10}, .message_us = 0.3};
  machine.by_nics = machine.gpudirect = true;
  return machine;
}

/// The same with the graphs of the hosts; an error as of graph_costs.
inline Result<planner::DeviceMachine> with_graphs(planner::DeviceMachine machine,
                                                  std::span<const topology::Graph* const> hosts) {
  std::vector<std::string> buses;
  std::map<const topology::Graph*, std::shared_ptr<const topology::Graph>> kinds;
  std::vector<std::shared_ptr<const topology::Graph>> graphs;
  for (const topology::Graph* host : hosts) {
    auto graph = *host;
    for (std::string& bus : give_buses(graph)) buses.push_back(std::move(bus));
    auto& kind = kinds[host];
    if (kind == nullptr) kind = std::make_shared<const topology::Graph>(std::move(graph));
    graphs.push_back(kind);
  }
  TUTTI_TRY(auto costs, planner::graph_costs(graphs, machine, buses));
  machine.graph = std::make_shared<const planner::GraphCosts>(std::move(costs));
  return machine;
}
inline Result<planner::DeviceMachine> with_graph(planner::DeviceMachine machine,
                                                 const topology::Graph& graph) {
  const topology::Graph* const hosts[] = {&graph};
  return with_graphs(std::move(machine), hosts);
}

}  // namespace tutti::test
