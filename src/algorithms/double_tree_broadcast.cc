// Double-tree broadcast: half of the message goes down each of two binary trees (double_tree.h).
// ceil(log2 n) rounds; no rank sends more than the message once: the bandwidth optimum for long
// messages, which flow through the trees tile by tile.
#include "algorithms/algorithm.h"
#include "algorithms/double_tree.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const plan::Shape& shape = plan.shape();
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    plan.lane(piece);
    broadcast_along(plan, double_tree(me, static_cast<int>(piece), shape.rank_count, shape.root),
                    piece);
  }
}

}  // namespace

constinit const Algorithm double_tree_broadcast{.name = "double_tree",
                                                .collective = Collective::kBroadcast,
                                                .applies = always,
                                                .contract = deterministic,
                                                .pieces = piece_per_tree,
                                                .build = build};

}  // namespace tutti
