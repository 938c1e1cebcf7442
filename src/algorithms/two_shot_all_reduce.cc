// Two-shot all-reduce: rank r owns chunk r. Everyone sends every owner its chunk; the owner reduces
// all of them in rank order and sends the result to everyone. Two rounds, 2(n-1)/n of the message
// per rank: the bandwidth optimum, in canonical order.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  direct_reduce_part(plan, me, own);
  direct_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm two_shot_all_reduce{.name = "two_shot",
                                              .collective = Collective::kAllReduce,
                                              .applies = always,
                                              .contract = deterministic,
                                              .pieces = piece_per_rank,
                                              .build = build};

}  // namespace tutti
