// File: tools/topo/gpu_rates.h: what copies between GPUs say of the links of a graph.
#pragma once
#include <string>

#include "tools/topo/gpu_copies.h"
#include "topology/graph/graph.h"

namespace tutti::tools {

/// Puts the figures into the graph of the host, and returns a table for people.
///
/// A copy takes the shortest ways (topology/embedding/routes.h): NVLinks between GPUs if they have
/// some, else the host's other links. A link carries at least what the fastest copy over it
/// reached, and that becomes its figure where copies speak for it: where it is the narrowest of a
/// copy's way; and where a copy is slower than its way says, and no copy over that link is any
/// faster. If several such links are on a way, those at GPUs count. If there are none, no single
/// link can be blamed, and the table says so. What is inside chips and boxes keeps its figure.
///
/// Figures that differ by less than 5 % are one figure, so that links of one kind stay alike.
/// Copies by the memory of the host are in the table alone: they stop there, and say nothing of
/// links. GPUs also get the fact `memory_gbs`.
std::string write_rates(topology::Graph& graph, const GpuRates& rates);

}  // namespace tutti::tools
