// Binomial gather: blocks go up a binomial tree to the root. ceil(log2 n) rounds and neighbours; a
// rank sends n/2 blocks at most, where direct sends one. So it buys few neighbours with bytes.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/tree_parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { gather_along(plan, me, binomial_parent); }

}  // namespace

constinit const Algorithm binomial_gather{.name = "binomial",
                                          .collective = Collective::kGather,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build};

}  // namespace tutti
