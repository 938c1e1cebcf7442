// File: cuda/comm/graph_costs.h: what the graph of a host (topology/graph/graph.h) says of the
// devices of ranks there: their memories, and the links between them, shared ones too.
//
// CUDA says which way is allowed (DeviceLink), the graph what that way passes: NVLinks alone, the
// host's other links alone, or those to the memory of the host and from there. The costs are those
// of planner/machine_cost.h, so what is simulated of a machine's graph and what is chosen on the
// machine agree.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/comm/select.h"
#include "plan/estimate/estimate.h"
#include "topology/graph/graph.h"

namespace tutti::planner {

/// Made once, then shared by threads.
struct GraphCosts {
  std::shared_ptr<const topology::Graph> graph;
  std::vector<topology::NodeId> devices;  // By device of the machine.
  std::string source;                     // "topology of node1 (probe)", "topology of box.topo".
  std::vector<plan::Resource> resources;  // Link directions; from `memories` on memories by device.
  std::uint32_t memories = 0;
  std::vector<std::vector<plan::Use>> uses;  // As DeviceMachine::links; empty on one device.
};

/// The machine's devices and links have to be known. Errors, in words for people: the graph has no
/// GPU of a device's PCI address, not the links that CUDA names, or not what they carry.
Result<GraphCosts> graph_costs(std::shared_ptr<const topology::Graph> graph, std::string source,
                               const DeviceMachine& machine,
                               std::span<const std::string> bus_of_rank);

/// As device_bound() says it. None where ranks share a device.
DeviceBound graph_bound(const GraphCosts& costs, const Request& request,
                        const DeviceMachine& machine);

}  // namespace tutti::planner
