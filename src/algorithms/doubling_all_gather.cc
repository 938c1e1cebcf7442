// Recursive doubling all-gather, for any number of ranks (halving_doubling.cc). ceil(log2 n)
// rounds; n-1 blocks received per rank, and sent if n is a power of two: both optimal.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { doubling_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm doubling_all_gather{.name = "doubling",
                                              .collective = Collective::kAllGather,
                                              .applies = always,
                                              .contract = deterministic,
                                              .pieces = one_piece,
                                              .build = build};

}  // namespace tutti
