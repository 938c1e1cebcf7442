// File: topology/embedding/groups.h: endpoints by host, and rings from host to host.
//
// A group is what NVLink, PCI Express and the like join: a host, or a rack of one NVLink domain. A
// ring of several groups enters each by one NIC, visits its endpoints, and leaves by another. Every
// second group is passed in the opposite direction: so the NIC by which one group is left is, by
// index, the NIC by which the next is entered, and traffic stays on its rail, while every NIC sends
// for one lane and receives for another. An odd number of groups has one seam where it does not.
#pragma once
#include <optional>

#include "topology/embedding/routes.h"

namespace tutti::topology {

struct Group {
  std::vector<NodeId> order;  // Its endpoints.
  std::vector<NodeId> nics;   // With a link to a network, of the hosts of the endpoints.
};

/// Groups in the order of their first endpoints. `by_tree`: the endpoints in the order in which
/// a walk down the PCI Express trees meets them, not in the order of the graph.
std::vector<Group> make_groups(const Graph& graph, std::span<const NodeId> endpoints, bool by_tree);

/// GB/s from a NIC into its network and back, the smaller; 0: not known.
double port_rate(const Graph& graph, const Adjacency& adjacency, NodeId nic);

/// One ring of one group; of several a ring for each NIC, in rotations. None without a way.
std::optional<std::vector<Lane>> rotations(const Graph& graph, Router& router,
                                           const std::vector<Group>& groups);

/// The best rings of the first group, used in all; none if the groups differ or are larger than
/// `most`, or no such ring exists.
std::optional<std::vector<Lane>> packed(const Graph& graph, Router& router,
                                        const std::vector<Group>& groups, std::size_t most);

/// GB/s that can enter the first group from the others together: what any ring must, as a lane
/// enters each group at least once. Infinite with one group, or over links of unknown bandwidth.
double entry_limit(const Graph& graph, const std::vector<Group>& groups);

/// How a lane passes a group.
struct Passage {
  std::vector<NodeId> path;
  NodeId in, out;  // NICs; none: as the routes go.
};
/// A lane through all groups, passage[g] in direction or, where g is odd, against it.
std::optional<Lane> join_passages(Router& router, std::vector<Passage> passages, double weight);

}  // namespace tutti::topology
