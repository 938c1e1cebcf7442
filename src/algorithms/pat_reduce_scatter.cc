// PAT reduce-scatter: parallel aggregated trees (pat.cc), in canonical order. ceil(log2 n) rounds;
// n-1 blocks sent by every rank; scratch for O(log n) blocks.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { pat_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm pat_reduce_scatter{.name = "pat",
                                             .collective = Collective::kReduceScatter,
                                             .applies = always,
                                             .contract = deterministic,
                                             .pieces = one_piece,
                                             .build = build};

}  // namespace tutti
