// Circulant reduce-scatter: ceil(log2 n) rounds and n-1 blocks sent and taken by every rank, for
// any n (circulant.cc): both optimal. The order of addition differs from block to block, so relaxed
// if n > 2.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { circulant_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm circulant_reduce_scatter{.name = "circulant",
                                                   .collective = Collective::kReduceScatter,
                                                   .applies = always,
                                                   .contract = deterministic_for_two,
                                                   .pieces = one_piece,
                                                   .build = build};

}  // namespace tutti
