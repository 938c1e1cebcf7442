// K-nomial: along a tree of radix 4, half as deep as the binomial one. For small messages: half the
// rounds of a binomial tree, for at most 3/2 of its messages at the root. By the estimator faster
// for messages of up to some KB, by up to half.
//
// The parent of a number is that number without its lowest base-4 digit that is not 0. So the
// subtrees of a rank and of its up to three children of a level are aligned blocks of 4^level ranks
// that follow each other, and adding them up in this order is two levels of the canonical tree.
//
// Broadcast: down the tree. ceil(log4 n) rounds; the root sends the message up to three times per
// round.
//
// All-reduce: up the tree to rank 0, and down again. 2 ceil(log4 n) rounds; rank 0 sends the
// message up to three times per round, a leaf once. Canonical order.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

struct KnomialTree {
  static constexpr int kRadix = 4;
  int parent = -1;                         // -1: this is the root.
  int ranks = 0;                           // In this subtree.
  std::vector<std::vector<Block>> levels;  // Children's subtrees, nearest first, ascending in rank.
};

// The place of `rank` in the tree of rank 0 over n ranks.
KnomialTree knomial_tree(int rank, int n) {
  KnomialTree tree;
  int size = 1;
  for (; size < n; size *= KnomialTree::kRadix) {
    const int digit = rank / size % KnomialTree::kRadix;
    if (digit != 0) {
      tree.parent = rank - digit * size;
      break;
    }
    std::vector<Block> children;
    for (int i = 1; i < KnomialTree::kRadix && rank + i * size < n; ++i)
      children.push_back({rank + i * size, std::min(size, n - rank - i * size)});
    if (!children.empty()) tree.levels.push_back(children);
  }
  tree.ranks = std::min(size, n - rank);
  return tree;
}

void build_broadcast(plan::Builder& plan, Rank me) {
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

void build_all_reduce(plan::Builder& plan, Rank me) {
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

constinit const Algorithm knomial_all_reduce{
    .name = "knomial",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_reduce,
    .claims = {.rounds = "<= 2 ceil(k/2)",
               .bytes = "<= (k + floor(k/2)) M",
               .peers = "<= k + floor(k/2)",
               .scratch = "1",
               .good_for = "as `binomial`, radix 4: half the rounds, for messages up to some KB"}};

constinit const Algorithm knomial_broadcast{
    .name = "knomial",
    .collective = Collective::kBroadcast,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_broadcast,
    .claims = {.rounds = "<= ceil(k/2)",
               .bytes = "<= (k + floor(k/2)) M",
               .peers = "<= k + floor(k/2)",
               .scratch = "0",
               .good_for = "as `binomial`, radix 4: half the rounds, for messages up to some KB"}};

}  // namespace tutti
