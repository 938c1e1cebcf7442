// Packed trees, reduce: shares of the message are added up along trees that fit the links of the
// machine together (packed_trees.h): the broadcast, reversed. The order of addition is the trees',
// so relaxed but for trees that are canonical.
#include "algorithms/algorithm.h"
#include "algorithms/packed_trees.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  std::uint32_t piece = 0;
  for (std::size_t tree = 0; tree < plan.shape().trees.size(); ++tree) {
    const TreePlace place = place_in(plan.shape().trees[tree], me);
    plan.lane(tree);
    for (int share = 0; share < plan.shape().trees[tree].weight; ++share)
      reduce_along(plan, me, place, piece++);
  }
}

}  // namespace

constinit const Algorithm packed_trees_reduce{.name = "packed_trees",
                                              .collective = Collective::kReduce,
                                              .applies = has_trees,
                                              .contract = contract_of_trees,
                                              .pieces = piece_per_share,
                                              .build = build};

}  // namespace tutti
