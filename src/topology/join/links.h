// File: topology/join/links.h: links with the figures of their kind.
#pragma once
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// A link of parallel connections with the same bandwidth each in both directions.
Link make_link(LinkKind kind, NodeId a, NodeId b, double gbs_each, int count = 1);

/// Such a link between every two.
void join_all(Graph& graph, LinkKind kind, const std::vector<NodeId>& nodes, double gbs);

}  // namespace tutti::topology
