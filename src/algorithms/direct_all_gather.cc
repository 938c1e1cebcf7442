// Direct all-gather: everyone sends its block to everyone. One round, n-1 blocks per rank: the
// bandwidth optimum.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { direct_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm direct_all_gather{.name = "direct",
                                            .collective = Collective::kAllGather,
                                            .applies = always,
                                            .contract = deterministic,
                                            .pieces = one_piece,
                                            .build = build};

}  // namespace tutti
