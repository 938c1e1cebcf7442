// Ring all-gather: every block goes around the ring once (ring.cc). n-1 rounds, n-1 blocks per
// rank: the bandwidth optimum, with two neighbours only.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { ring_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm ring_all_gather{.name = "ring",
                                          .collective = Collective::kAllGather,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build};

}  // namespace tutti
