// Double-tree reduce: half of the message is added up along each of two binary trees to the root
// (double_tree.h): the broadcast, reversed. ceil(log2 n) rounds; no rank sends more than the
// message once: the bandwidth optimum for long messages, which flow through the trees tile by tile.
// The order of addition is the trees', so relaxed if n > 2.
#include "algorithms/algorithm.h"
#include "algorithms/double_tree.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Shape& shape = plan.shape();
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    plan.lane(piece);
    reduce_along(plan, me, double_tree(me, static_cast<int>(piece), shape.rank_count, shape.root),
                 piece);
  }
}

}  // namespace

constinit const Algorithm double_tree_reduce{.name = "double_tree",
                                             .collective = Collective::kReduce,
                                             .applies = always,
                                             .contract = deterministic_for_chains,
                                             .pieces = piece_per_tree,
                                             .build = build};

}  // namespace tutti
