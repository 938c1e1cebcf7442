// File: cuda/comm/graph_costs.h: what the graphs of hosts (topology/graph/graph.h) say of the
// devices of ranks there: their memories, and the links between them, shared ones too.
//
// CUDA says which way is allowed (DeviceLink), the graph what that way passes: NVLinks alone, the
// host's other links alone, or those to the memory of the host and from there. Between hosts it
// passes the nearest NICs, from the device or, without GPUDirect, from the memory of the host next
// to it. The costs are those of planner/machine_cost.h, so what is simulated of a machine's graph
// and what is chosen on the machine agree.
//
// What the NICs of several hosts hang on is not known: where all hosts have equally many, the n-th
// NICs share a switch (rails), and other switches join these; else one plane joins all. Only the
// NICs count that are as fast as the host's fastest. A graph of all hosts together says it itself.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/comm/select.h"
#include "plan/estimate/estimate.h"
#include "topology/graph/graph.h"

namespace tutti::planner {

/// Made once, then shared by threads.
struct GraphCosts {
  using Uses = std::vector<plan::Use>;
  /// A rank's way to other hosts.
  struct Remote {
    Uses out, in;                          // Between its device and the nearest NICs,
    Uses port_out, port_in;                // and on to the switches at these.
    Uses up, down;                         // From these to the switches above, and back.
    std::vector<topology::NodeId> leaves;  // The former. Ranks with the same ones need no others.
  };

  topology::Graph graph;                  // All hosts together.
  std::vector<topology::NodeId> devices;  // By device of the machine.
  std::string between_hosts;              // In words; empty: there is one host.
  std::vector<plan::Resource> resources;  // Link directions; from `memories` on memories by device.
  std::uint32_t memories = 0;
  /// The same where switches multicast and add up (NVLS); empty: they don't between these devices.
  std::vector<plan::Resource> multicast;
  /// What ranks of one host take, in resources from the host's first on; equal ones once.
  std::vector<Uses> local;
  std::vector<std::uint32_t> first_resource;         // By host.
  std::vector<std::uint32_t> host, place;            // By rank; place: among those of its host.
  std::vector<std::vector<std::uint32_t>> local_at;  // By rank and a peer's place: in `local`.
  std::vector<Remote> remote;                        // By rank; empty: there is one host.
  /// By two hosts: the link between their NICs that goes before the way by switches.
  std::map<std::pair<std::uint32_t, std::uint32_t>, Uses> own_links;

  /// What goes from one rank to another takes; empty on one device.
  Uses uses(std::size_t from, std::size_t to) const;
};

/// `hosts`: by host, its graph; equal ones may be one. `places`: by host, its node in the one graph
/// that all have, which then says what joins them; none: each graph is of one host. The machine's
/// devices and links have to be known. Errors, in words for people: a graph has no GPU of a
/// device's PCI address, not the links that CUDA names, or not what they carry.
Result<GraphCosts> graph_costs(std::span<const std::shared_ptr<const topology::Graph>> hosts,
                               const DeviceMachine& machine,
                               std::span<const std::string> bus_of_rank,
                               std::span<const topology::NodeId> places = {});

/// As device_bound() says it. None where ranks share a device.
DeviceBound graph_bound(const GraphCosts& costs, const Request& request,
                        const DeviceMachine& machine);

}  // namespace tutti::planner
