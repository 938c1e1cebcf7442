// File: topology/join/repeat.h: a machine several times: what a file says of one host, as a
// cluster of such hosts.
#pragma once
#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

/// The graph with so many hosts for each that it has, called host0, host1, ... where it was; all
/// hang on the network that the graph has. What tells one part from all others in the world (UUIDs,
/// GUIDs) is left out of the copies. kInvalidArgument: a number below 1, a graph that becomes too
/// large, or one whose hosts are joined by more than a network.
Result<Graph> repeated(const Graph& graph, int times);

}  // namespace tutti::topology
