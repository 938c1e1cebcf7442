// File: topology/graph/validate.h: whether there can be a machine that looks like a graph.
#pragma once
#include <string_view>

#include "topology/graph/finding.h"
#include "tutti/result.h"

namespace tutti::topology {

/// What no machine has (an Error: links to itself or to nothing, names or bus addresses twice, more
/// NVLinks than any chip has, cycles of PCI bridges) and what is doubtful (findings: unequal
/// reverse links, a GPU without links among linked ones, unknown rates). `source` is what errors
/// call the graph.
Result<Findings> validate(const Graph& graph, std::string_view source);

}  // namespace tutti::topology
