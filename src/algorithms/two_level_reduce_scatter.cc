// Two-level reduce-scatter: groups add up among themselves first, and one sum per block leaves each
// group (two_level.cc). 2 rounds.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { two_level_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm two_level_reduce_scatter{.name = "two_level",
                                                   .collective = Collective::kReduceScatter,
                                                   .applies = has_groups,
                                                   .contract = two_level_contract,
                                                   .pieces = one_piece,
                                                   .build = build};

}  // namespace tutti
