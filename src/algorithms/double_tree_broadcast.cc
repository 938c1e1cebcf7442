// Double-tree broadcast: half of the message goes down each of two binary trees (double_tree.h).
// ceil(log2 n) rounds; no rank sends more than the message once: the bandwidth optimum for long
// messages, which flow through the trees tile by tile.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/double_tree.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    const BinaryTree tree = double_tree(wrap(me.value - root, n), static_cast<int>(piece), n);
    const plan::Location source =
        tree.parent < 0 ? plan.input(piece) : plan.from(wrap(tree.parent + root, n), Form::kResult);
    std::vector<plan::Location> targets{plan.output(piece)};
    for (const int child : tree.children)
      targets.push_back(plan.to(wrap(child + root, n), Form::kResult));
    plan.lane(piece);
    plan.move(piece, std::span(&source, 1), targets);
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
