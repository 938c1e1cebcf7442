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
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    const auto tree = static_cast<int>(piece);
    const BinaryTree place = double_tree(me, tree, plan.shape().rank_count, plan.shape().root);
    const Form form = place.children.empty() ? Form::kContribution : Form::kPartial;
    const plan::Location target =
        place.parent < 0 ? plan.output(piece) : plan.to(place.parent, form);
    plan.lane(piece);
    add_up_tree(plan, me, piece, tree, std::span(&target, 1));
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
