// Hierarchical all-gather: a block enters each other group once and is handed on inside it
// (hierarchical.cc). One round more than there are nested kinds of groups.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { hierarchical_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm hierarchical_all_gather{.name = "hierarchical",
                                                  .collective = Collective::kAllGather,
                                                  .applies = has_groups,
                                                  .contract = deterministic,
                                                  .pieces = one_piece,
                                                  .build = build};

}  // namespace tutti
