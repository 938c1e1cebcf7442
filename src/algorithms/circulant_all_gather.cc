// Circulant all-gather: ceil(log2 n) rounds and n-1 blocks sent and taken by every rank, for any n
// (circulant.cc): both optimal.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { circulant_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm circulant_all_gather{.name = "circulant",
                                               .collective = Collective::kAllGather,
                                               .applies = always,
                                               .contract = deterministic,
                                               .pieces = one_piece,
                                               .build = build};

}  // namespace tutti
