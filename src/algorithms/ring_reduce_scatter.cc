// Ring reduce-scatter: every block goes around the ring once and is added up on its way to its
// owner (ring.cc). n-1 rounds, n-1 blocks per rank: the bandwidth optimum, with two neighbours
// only. The order of addition differs from block to block, so relaxed if n > 2.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { ring_reduce_part(plan, me, plan.output(0)); }

}  // namespace

constinit const Algorithm ring_reduce_scatter{.name = "ring",
                                              .collective = Collective::kReduceScatter,
                                              .applies = always,
                                              .contract = deterministic_for_two,
                                              .pieces = one_piece,
                                              .build = build};

}  // namespace tutti
