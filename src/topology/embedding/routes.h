// File: topology/embedding/routes.h: the ways from one node to another as a unit flow.
//
// All ways with the fewest links, split at every node by what can go on: equal NVSwitches get equal
// shares. GPUs do not forward. Routes are made once and shared.
#pragma once
#include <array>
#include <map>
#include <optional>

#include "topology/embedding/embed.h"

namespace tutti::topology {

/// Which links a route may use.
enum class Over : std::uint8_t {
  kFast,     // NVLink, xGMI.
  kSlow,     // In a host, but none of those: PCI Express, C2C, between sockets.
  kHost,     // Both: all but NIC ports and the network.
  kNetwork,  // Ports and the network.
  kAny,
};

/// Whether a kind of link is one of these.
bool allows(Over over, LinkKind kind);

class Router {
 public:
  explicit Router(const Graph& graph);
  /// None if there is no way.
  std::optional<Route> find(NodeId from, NodeId to, Over over);
  /// Links from a node to all that it reaches; -1: not reached. GPUs of `over` are not passed.
  std::map<NodeId, int> distances(NodeId from, Over over) const;

  /// A place in routes(): over fast links, else within the host, else over anything.
  std::optional<std::uint32_t> hop(NodeId from, NodeId to);
  /// From an endpoint out of one NIC, into another NIC and to an endpoint; without a NIC on either
  /// side, or if there is no such way, as hop().
  std::optional<std::uint32_t> hop(NodeId from, NodeId out, NodeId in, NodeId to);
  std::optional<std::uint32_t> hop(NodeId from, NodeId to, Over over);
  /// The place of a route that was made elsewhere.
  std::uint32_t add(Route route);

  const std::vector<Route>& routes() const { return routes_; }
  std::vector<Route> take() && { return std::move(routes_); }

 private:
  bool level(NodeId from, NodeId to, Over over);

  const Graph& graph_;
  Adjacency adjacency_;
  std::vector<Route> routes_;
  std::map<std::array<std::uint32_t, 4>, std::optional<std::uint32_t>> known_;
  std::vector<int> levels_;            // By node; -1: not met in this search.
  std::vector<double> widths_, flow_;  // By node: what can go on to the target; what arrives.
  std::vector<NodeId> met_;            // In the order of the search.
};

}  // namespace tutti::topology
