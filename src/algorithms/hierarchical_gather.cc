// Hierarchical gather: in every group a rank at the root's place takes the blocks of the others and
// passes them on, level by level. A block leaves each of its groups once at most, along the root's
// rail; the root has few neighbours.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/tree_parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { gather_along(plan, me, hierarchical_parent); }

}  // namespace

constinit const Algorithm hierarchical_gather{.name = "hierarchical",
                                              .collective = Collective::kGather,
                                              .applies = has_groups,
                                              .contract = deterministic,
                                              .pieces = one_piece,
                                              .build = build};

}  // namespace tutti
