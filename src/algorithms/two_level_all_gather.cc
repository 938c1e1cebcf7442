// Two-level all-gather: a block enters each other group once and is handed on inside it
// (two_level.cc). 2 rounds.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) { two_level_gather_part(plan, me, plan.input(0)); }

}  // namespace

constinit const Algorithm two_level_all_gather{.name = "two_level",
                                               .collective = Collective::kAllGather,
                                               .applies = has_groups,
                                               .contract = deterministic,
                                               .pieces = one_piece,
                                               .build = build};

}  // namespace tutti
