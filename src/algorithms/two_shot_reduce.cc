// Two-shot reduce: everyone sends every rank its piece, each rank reduces its own in rank order,
// and sends the root the result. Two rounds; each rank but the root sends the message once: the
// bandwidth optimum. All ranks share the arithmetic.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { reduce_and_collect(plan, me, direct_reduce_part); }

}  // namespace

constinit const Algorithm two_shot_reduce{.name = "two_shot",
                                          .collective = Collective::kReduce,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = piece_per_rank,
                                          .build = build};

}  // namespace tutti
