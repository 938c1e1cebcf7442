// Direct reduce-scatter: everyone sends every owner its block; the owner reduces all of them in
// rank order. One round, n-1 blocks per rank: the bandwidth optimum, in canonical order.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { direct_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm direct_reduce_scatter{.name = "direct",
                                                .collective = Collective::kReduceScatter,
                                                .applies = always,
                                                .contract = deterministic,
                                                .pieces = one_piece,
                                                .build = build};

}  // namespace tutti
