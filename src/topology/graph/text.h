// File: topology/graph/text.h: the text form of a graph, and back. docs/topology-format.md is its
// description for people.
//
// parse_graph(print(graph)) is graph, to the last digit of every number.
#pragma once
#include <string>
#include <string_view>

#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

std::string print(const Graph& graph);

/// The graph of a text; `source` is what errors call it ("cluster.topo:17:5: ..."). At most 64 MiB
/// of text and 10 million links.
Result<Graph> parse_graph(std::string_view text, std::string_view source);

}  // namespace tutti::topology
