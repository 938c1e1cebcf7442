// K-nomial all-reduce: up a tree of radix 4 (knomial_tree.h) to rank 0, and down again. 2 ceil(log4
// n) rounds; rank 0 sends the message up to three times per round, a leaf once. Canonical order.
#include "algorithms/algorithm.h"
#include "algorithms/knomial_tree.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const KnomialTree tree = knomial_tree(me.value, plan.shape().rank_count);
  std::vector<plan::Location> results{plan.output(0)};
  for (auto level = tree.levels.rbegin(); level != tree.levels.rend(); ++level) {
    for (const Block& child : *level) results.push_back(plan.to(child.first, Form::kResult));
  }
  const auto goal =
      tree.parent < 0 ? results : std::vector{plan.to(tree.parent, form_of(tree.ranks))};
  plan::Location sum = plan.input(0);
  if (tree.levels.empty()) plan.move(0, std::span(&sum, 1), goal);
  for (std::size_t level = 0; level < tree.levels.size(); ++level) {
    std::vector sources{sum};
    for (const Block& child : tree.levels[level])
      sources.push_back(plan.from(child.first, form_of(child.size)));
    sum = plan.scratch(0, Form::kPartial);
    plan.move(0, sources, level + 1 == tree.levels.size() ? goal : std::vector{sum});
  }
  if (tree.parent < 0) return;
  const plan::Location source = plan.from(tree.parent, Form::kResult);
  plan.move(0, std::span(&source, 1), results);
}

}  // namespace

constinit const Algorithm knomial_all_reduce{.name = "knomial",
                                             .collective = Collective::kAllReduce,
                                             .applies = always,
                                             .contract = deterministic,
                                             .pieces = one_piece,
                                             .build = build};

}  // namespace tutti
