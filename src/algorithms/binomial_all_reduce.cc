// Binomial all-reduce: the whole message is added up along a binomial tree to rank 0, and goes back
// the same way. 2 ceil(log2 n) rounds at most; a leaf sends the message once, rank 0 ceil(log2 n)
// times. Canonical order. The fewest messages in all, 2(n-1), and ceil(log2 n) neighbours at most.
#include "algorithms/algorithm.h"
#include "algorithms/nearest_tree.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const NearestTree tree = nearest_tree(me.value, 0, plan.shape().rank_count);
  std::vector<plan::Location> results{plan.output(0)};
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    results.push_back(plan.to(child->rank, Form::kResult));  // The largest subtree first.
  reduce_to(plan, me.value, 0, 0, results);
  if (tree.parent < 0) return;
  const plan::Location source = plan.from(tree.parent, Form::kResult);
  plan.move(0, std::span(&source, 1), results);
}

}  // namespace

constinit const Algorithm binomial_all_reduce{.name = "binomial",
                                              .collective = Collective::kAllReduce,
                                              .applies = always,
                                              .contract = deterministic,
                                              .pieces = one_piece,
                                              .build = build};

}  // namespace tutti
