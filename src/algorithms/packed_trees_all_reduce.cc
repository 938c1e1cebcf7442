// Packed trees, all-reduce: shares of the message are added up along trees that fit the links of
// the machine together, and go back the same way (packed_trees.h, along_tree.h). Twice as many
// rounds as the deepest tree has edges. The order of addition is the trees', so relaxed but for
// trees that are canonical.
#include <algorithm>

#include "algorithms/algorithm.h"
#include "algorithms/packed_trees.h"

namespace tutti {
namespace {

// Pieces on the way in a tree, at least. More keep both directions of links busier in long messages
// and cost more steps in short ones; see double_tree_all_reduce.cc.
constexpr int kParts = 2;

std::uint32_t parts_of_share(const plan::Shape& shape) {
  int least = kParts;
  for (const plan::SpanningTree& tree : shape.trees) least = std::min(least, tree.weight);
  return static_cast<std::uint32_t>((kParts + least - 1) / least);
}

std::uint32_t parts_of_shares(const plan::Shape& shape) {
  return piece_per_share(shape) * parts_of_share(shape);
}

void build(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, parts_of_share(plan.shape()),
               [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
                 all_reduce_along(plan, me, place, first, count);
               });
}

}  // namespace

constinit const Algorithm packed_trees_all_reduce{.name = "packed_trees",
                                                  .collective = Collective::kAllReduce,
                                                  .applies = has_trees,
                                                  .contract = contract_of_trees,
                                                  .pieces = parts_of_shares,
                                                  .build = build};

}  // namespace tutti
