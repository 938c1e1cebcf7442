// Hierarchical all-reduce: reduce-scatter inside the innermost groups, then between them inside the
// next ones, and so on; and all-gather on the way back (hierarchical.cc). For l nested kinds of
// groups 2(l + 1) rounds. A chunk enters and leaves a group once: of the message, a rank of a full
// group of g sends about 2/g between groups, less than 2 inside.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  hierarchical_reduce_part(plan, me, own);
  hierarchical_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm hierarchical_all_reduce{.name = "hierarchical",
                                                  .collective = Collective::kAllReduce,
                                                  .applies = has_groups,
                                                  .contract = hierarchical_contract,
                                                  .pieces = piece_per_rank,
                                                  .build = build};

}  // namespace tutti
