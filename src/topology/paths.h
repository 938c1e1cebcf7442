// File: topology/paths.h: the best way from one node to others, and its class.
//
// Best is: the best class; of those the widest; of those the fewest links; of those the one whose
// links come first in the graph. Classes are NCCL's (src/graph/topo.h), so that people can compare.
// A path passes through a GPU as NVB only (one GPU, NVLinks or xGMI on both sides), never through a
// host node, and through a NIC only into the network or out of it.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "topology/graph.h"

namespace tutti::topology {

/// How near two nodes are, best first.
enum class PathClass : std::uint8_t {
  kLoc,  // The same node.
  kNvl,  // NVLink or xGMI, switches included.
  kNvb,  // NVLink through one GPU.
  kC2c,  // A chip-to-chip link.
  kPix,  // At most one PCIe switch.
  kPxb,  // Several PCIe switches.
  kP2c,  // C2C to the CPU, then PCIe.
  kPxn,  // NVLink to a GPU, then PCIe. Plans relay so; no path here goes through a GPU for it.
  kPhb,  // Through the CPU.
  kSys,  // Between NUMA nodes.
  kNet,  // Over the network.
  kDis   // Not connected.
};
std::string_view to_string(PathClass path_class);  // "NVL"

struct Path {
  PathClass path_class = PathClass::kDis;
  /// GB/s, the least of the links. kUnknown if no link's is known or there is none; else the origin
  /// that is trusted least, links of unknown bandwidth apart.
  Quantity bandwidth;
  double latency_us = 0;               // Sum of those that are known.
  std::vector<NodeId> nodes;           // Both ends included; empty if not connected.
  std::vector<Adjacency::Edge> edges;  // One less.
};

/// The best paths from one node, found once: in links times classes. Any number of nodes can then
/// be asked for. The graph and its adjacency must outlive it.
class PathSearch {
 public:
  PathSearch(const Graph& graph, const Adjacency& adjacency, NodeId from);
  Path to(NodeId node);

 private:
  struct Step {
    std::size_t before = 0;
    const Adjacency::Edge* edge = nullptr;
  };
  using Tree = std::vector<Step>;  // By state.
  const Tree& fewest(double width);

  const Graph& graph_;
  const Adjacency& adjacency_;
  NodeId from_;
  std::vector<double> widths_;    // By state (paths.cc), of the widest way; -1: none.
  std::map<double, Tree> trees_;  // By width.
};

/// The best path between two nodes; for many, use PathSearch.
Path best_path(const Graph& graph, NodeId from, NodeId to);

}  // namespace tutti::topology
