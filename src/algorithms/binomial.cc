// Binomial broadcast: who has the message hands it on, so that the ranks that have it double each
// round. ceil(log2 n) rounds, the optimum; the root sends the message up to ceil(log2 n) times.
#include "algorithms/algorithm.h"
#include "algorithms/nearest_tree.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  // Numbers count from the root.
  const NearestTree tree = nearest_tree(wrap(me.value - root, n), 0, n);
  const plan::Location source =
      tree.parent < 0 ? plan.input(0) : plan.from(wrap(tree.parent + root, n), Form::kResult);
  std::vector<plan::Location> targets{plan.output(0)};
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    targets.push_back(plan.to(wrap(child->rank + root, n), Form::kResult));  // Largest first.
  plan.move(0, std::span(&source, 1), targets);
}

}  // namespace

constinit const Algorithm binomial_broadcast{.name = "binomial",
                                             .collective = Collective::kBroadcast,
                                             .applies = always,
                                             .contract = deterministic,
                                             .pieces = one_piece,
                                             .build = build};

}  // namespace tutti
