// File: topology/graph/count_gpus.h: numbers for GPUs that their source does not number.
#pragma once
#include "topology/graph/graph.h"

namespace tutti::topology {

/// Gives GPUs of a graph of which none has an index numbers in the order of their addresses, as
/// drivers count by default: "host0/gpu0".
void count_gpus(Graph& graph);

}  // namespace tutti::topology
