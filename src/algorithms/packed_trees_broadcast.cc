// Packed trees, broadcast: shares of the message go down trees that fit the links of the machine
// together (packed_trees.h). As many rounds as the deepest tree has edges; no rank but the root
// gets anything twice. The bandwidth optimum, as good as the trees are packed.
#include "algorithms/algorithm.h"
#include "algorithms/packed_trees.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, 1, [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) broadcast_along(plan, place, first + i);
  });
}

}  // namespace

constinit const Algorithm packed_trees_broadcast{.name = "packed_trees",
                                                 .collective = Collective::kBroadcast,
                                                 .applies = has_trees,
                                                 .contract = deterministic,
                                                 .pieces = piece_per_share,
                                                 .build = build};

}  // namespace tutti
