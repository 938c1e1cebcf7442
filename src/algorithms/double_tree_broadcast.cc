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
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    const BinaryTree place =
        double_tree(me, static_cast<int>(piece), plan.shape().rank_count, plan.shape().root);
    const plan::Location source =
        place.parent < 0 ? plan.input(piece) : plan.from(place.parent, Form::kResult);
    std::vector<plan::Location> targets{plan.output(piece)};
    for (const int child : place.children) targets.push_back(plan.to(child, Form::kResult));
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
