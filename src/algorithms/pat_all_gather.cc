// PAT all-gather: parallel aggregated trees (pat.cc). ceil(log2 n) rounds; n-1 blocks taken by
// every rank, and sent if n is a power of two.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { pat_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm pat_all_gather{.name = "pat",
                                         .collective = Collective::kAllGather,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = one_piece,
                                         .build = build};

}  // namespace tutti
