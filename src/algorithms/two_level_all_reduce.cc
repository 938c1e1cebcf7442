// Two-level all-reduce: reduce-scatter inside the group, exchange between groups, all-gather inside
// the group (two_level.cc). 4 rounds. A chunk enters and leaves a group once: of the message, a
// rank of a full group of g sends about 2/g between groups, less than 2 inside.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Location own = plan.output(chunk_of(me.value));
  two_level_reduce_part(plan, me, own);
  two_level_gather_part(plan, me, own);
}

}  // namespace

constinit const Algorithm two_level_all_reduce{.name = "two_level",
                                               .collective = Collective::kAllReduce,
                                               .applies = has_groups,
                                               .contract = two_level_contract,
                                               .pieces = piece_per_rank,
                                               .build = build};

}  // namespace tutti
