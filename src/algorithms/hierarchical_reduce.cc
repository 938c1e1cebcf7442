// Hierarchical reduce: groups add up among themselves first, and one sum per chunk leaves each
// group (hierarchical.cc); then each rank sends the root its result. Two rounds more than there are
// nested kinds of groups. All ranks share the arithmetic, and what is between groups.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { reduce_and_collect(plan, me, hierarchical_reduce_part); }

}  // namespace

constinit const Algorithm hierarchical_reduce{.name = "hierarchical",
                                              .collective = Collective::kReduce,
                                              .applies = has_groups,
                                              .contract = hierarchical_contract,
                                              .pieces = piece_per_rank,
                                              .build = build};

}  // namespace tutti
