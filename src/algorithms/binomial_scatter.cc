// Binomial scatter: blocks go down a binomial tree from the root. ceil(log2 n) rounds and
// neighbours; the root sends n-1 blocks, others pass on less than n/2 of them.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/tree_parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { scatter_along(plan, me, binomial_parent); }

}  // namespace

constinit const Algorithm binomial_scatter{.name = "binomial",
                                           .collective = Collective::kScatter,
                                           .applies = always,
                                           .contract = deterministic,
                                           .pieces = one_piece,
                                           .build = build};

}  // namespace tutti
