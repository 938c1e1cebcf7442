// Hierarchical scatter: in every group a rank at the root's place takes the blocks of the others
// and hands them out, level by level. A block enters each of its groups once, along the root's
// rail; the root has few neighbours.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/tree_parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { scatter_along(plan, me, hierarchical_parent); }

}  // namespace

constinit const Algorithm hierarchical_scatter{.name = "hierarchical",
                                               .collective = Collective::kScatter,
                                               .applies = has_groups,
                                               .contract = deterministic,
                                               .pieces = one_piece,
                                               .build = build};

}  // namespace tutti
