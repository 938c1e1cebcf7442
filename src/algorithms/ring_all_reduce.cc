// Ring all-reduce: every chunk goes around the ring once and is added up, then once more and is
// handed out (ring.cc). 2(n-1) rounds, 2(n-1)/n of the message per rank: the bandwidth optimum,
// with two neighbours only. The order of addition differs from chunk to chunk, so relaxed if n > 2.
//
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. JPDC
// 2009.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  ring_reduce_part(plan, me, own);
  ring_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm ring_all_reduce{.name = "ring",
                                          .collective = Collective::kAllReduce,
                                          .applies = always,
                                          .contract = deterministic_for_two,
                                          .pieces = piece_per_rank,
                                          .build = build};

}  // namespace tutti
