// PAT all-reduce: parallel aggregated trees up and down again (pat.cc), in canonical order. 2
// ceil(log2 n) rounds and 2(n-1)/n of the message per rank: both optimal if n is a power of two.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  pat_reduce_part(plan, me, own);
  pat_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm pat_all_reduce{.name = "pat",
                                         .collective = Collective::kAllReduce,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = piece_per_rank,
                                         .build = build};

}  // namespace tutti
