// Hierarchical reduce-scatter: groups add up among themselves first, and one sum per block leaves
// each group (hierarchical.cc). One round more than there are nested kinds of groups.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { hierarchical_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm hierarchical_reduce_scatter{.name = "hierarchical",
                                                      .collective = Collective::kReduceScatter,
                                                      .applies = has_groups,
                                                      .contract = hierarchical_contract,
                                                      .pieces = one_piece,
                                                      .build = build};

}  // namespace tutti
