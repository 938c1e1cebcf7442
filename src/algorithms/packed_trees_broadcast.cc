// Packed trees, broadcast: shares of the message go down trees that fit the links of the machine
// together (packed_trees.h). As many rounds as the deepest tree has edges; no rank but the root
// gets anything twice. The bandwidth optimum, as good as the trees are packed.
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
      broadcast_along(plan, place, piece++);
  }
}

}  // namespace

constinit const Algorithm packed_trees_broadcast{.name = "packed_trees",
                                                 .collective = Collective::kBroadcast,
                                                 .applies = has_trees,
                                                 .contract = deterministic,
                                                 .pieces = piece_per_share,
                                                 .build = build};

}  // namespace tutti
