// File: topology/join/repeat.h: a machine several times, and several machines as one: what files
// say of single hosts, as a cluster of such hosts.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

/// The graph with so many hosts for each that it has, called host0, host1, ... where it was; all
/// hang on the network that the graph has. What tells one part from all others in the world (UUIDs,
/// GUIDs) is left out of the copies. kInvalidArgument: a number below 1, a graph that becomes too
/// large, or one whose hosts are joined by more than a network.
Result<Graph> repeated(const Graph& graph, int times);

/// The graph of one host without what its NICs lead to. The NICs with the fastest ports have the
/// fact "speed_mbps", which says what these carry; no other NIC has it.
Graph without_network(const Graph& host);

struct JoinedHosts {
  Graph graph;
  std::vector<std::vector<NodeId>> nodes;  // By host and node of the host's own graph.
  std::vector<std::uint32_t> first_link;   // By host; its links are in the order of its own graph.
};
/// Graphs of one host each, of which all nodes are in the host, as one graph: hosts host0, host1,
/// ... in this order, joined as join_network() does. Errors as of that.
Result<JoinedHosts> joined(std::span<const Graph* const> hosts, std::string_view network);

}  // namespace tutti::topology
