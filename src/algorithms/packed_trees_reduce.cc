// Packed trees, reduce: shares of the message are added up along trees that fit the links of the
// machine together (packed_trees.h): the broadcast, reversed. The order of addition is the trees',
// so relaxed but for trees that are canonical.
#include "algorithms/algorithm.h"
#include "algorithms/packed_trees.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, 1, [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) reduce_along(plan, me, place, first + i);
  });
}

}  // namespace

constinit const Algorithm packed_trees_reduce{.name = "packed_trees",
                                              .collective = Collective::kReduce,
                                              .applies = has_trees,
                                              .contract = contract_of_trees,
                                              .pieces = piece_per_share,
                                              .build = build};

}  // namespace tutti
