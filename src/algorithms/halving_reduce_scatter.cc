// Recursive halving reduce-scatter, for any number of ranks, in canonical order
// (halving_doubling.cc). ceil(log2 n) rounds, n-1 blocks per rank: both optimal.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { halving_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm halving_reduce_scatter{.name = "halving",
                                                 .collective = Collective::kReduceScatter,
                                                 .applies = always,
                                                 .contract = deterministic,
                                                 .pieces = one_piece,
                                                 .build = build};

}  // namespace tutti
