// Halving-doubling all-reduce, for any number of ranks, in canonical order: recursive halving
// leaves each rank the result of its chunk, recursive doubling hands it around
// (halving_doubling.cc). 2 ceil(log2 n) rounds; 2(n-1)/n of the message per rank, the bandwidth
// optimum, and log2 n neighbours if n is a power of two. For other n that much is the average, and
// ranks of a block that is cut off have more neighbours.
//
// R. Rabenseifner: Optimization of Collective Reduction Operations. ICCS 2004. (Distance doubles
// here while the data halves, because that order is the canonical one.)
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  halving_reduce_part(plan, me, own);
  doubling_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm halving_doubling_all_reduce{.name = "halving_doubling",
                                                      .collective = Collective::kAllReduce,
                                                      .applies = always,
                                                      .contract = deterministic,
                                                      .pieces = piece_per_rank,
                                                      .build = build};

}  // namespace tutti
