// Circulant all-reduce: reduce-scatter and all-gather on the same circulant graph (circulant.cc). 2
// ceil(log2 n) rounds and 2(n-1)/n of the message per rank, for any n: the bandwidth optimum. The
// order of addition differs from chunk to chunk, so relaxed if n > 2.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  circulant_reduce_part(plan, me, own);
  circulant_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm circulant_all_reduce{.name = "circulant",
                                               .collective = Collective::kAllReduce,
                                               .applies = always,
                                               .contract = deterministic_for_two,
                                               .pieces = piece_per_rank,
                                               .build = build};

}  // namespace tutti
