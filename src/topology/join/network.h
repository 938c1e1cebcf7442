// File: topology/join/network.h: networks that join the NICs of hosts.
//
//   plane                 of the network only the ends are known
//   rail[/ratio]          rail-optimised fat tree: the n-th NIC of 32 hosts shares a leaf; spines
//                         above join leaves. Up to `ratio` (1) ports down for one port up.
//   fat-tree[/ratio]      32 NICs to a leaf in the order of the hosts, spines above
//   dragonfly[/switches]  groups of so many (32) switches with 16 NICs each, all switches of a
//                         group joined, all groups joined by as many links as 17 ports a switch
//                         allow
//   torus[/AxB[xC]]       of hosts, each with a router; without sizes as square as the hosts allow.
//                         A host's NICs' bandwidth is divided evenly among the directions.
//
// A link between switches is as fast as the fastest NIC. Switches have 64 ports; where two tiers of
// such switches do not suffice, spines with more ports stand for the tiers above, and a note says
// so. To add a network: a function, and one line of the table in network.cc.
#pragma once
#include <string_view>

#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

/// Joins all NICs of the graph that have a fact "speed_mbps" by a network: `spec` is "rail",
/// "fat-tree/2", ... Uses that fact and the order of NICs in a host. An unknown name or a parameter
/// that does not fit is a kInvalidArgument; the graph is then as it was.
Status join_network(Graph& graph, std::string_view spec);

}  // namespace tutti::topology
