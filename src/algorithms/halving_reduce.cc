// Halving reduce: recursive halving reduce-scatter, then each rank sends the root its result.
// ceil(log2 n) + 1 rounds; each rank but the root sends the message once: the bandwidth optimum.
// All ranks share the arithmetic. Canonical order.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { reduce_and_collect(plan, me, halving_reduce_part); }

}  // namespace

constinit const Algorithm halving_reduce{.name = "halving",
                                         .collective = Collective::kReduce,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = piece_per_rank,
                                         .build = build};

}  // namespace tutti
