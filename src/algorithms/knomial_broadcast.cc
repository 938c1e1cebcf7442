// K-nomial broadcast: down a tree of radix 4 (knomial_tree.h). ceil(log4 n) rounds; the root sends
// the message up to three times per round. For small messages.
#include "algorithms/algorithm.h"
#include "algorithms/knomial_tree.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  // Numbers count from the root.
  const KnomialTree tree = knomial_tree(wrap(me.value - root, n), n);
  const plan::Location source =
      tree.parent < 0 ? plan.input(0) : plan.from(wrap(tree.parent + root, n), Form::kResult);
  std::vector<plan::Location> targets{plan.output(0)};
  for (auto level = tree.levels.rbegin(); level != tree.levels.rend(); ++level) {
    for (const Block& child : *level)  // Largest first.
      targets.push_back(plan.to(wrap(child.first + root, n), Form::kResult));
  }
  plan.move(0, std::span(&source, 1), targets);
}

}  // namespace

constinit const Algorithm knomial_broadcast{.name = "knomial",
                                            .collective = Collective::kBroadcast,
                                            .applies = always,
                                            .contract = deterministic,
                                            .pieces = one_piece,
                                            .build = build};

}  // namespace tutti
