// Binomial: along a binomial tree, ceil(log2 n) deep. A rank has ceil(log2 n) neighbours at most.
//
// Broadcast and reduce take as many rounds, the optimum; gather and scatter buy few neighbours with
// bytes, as direct sends each block once. All-reduce: the reduce to rank 0, and back the same way:
// the fewest messages in all, 2(n-1). All sums are in canonical order, for every root.
//
// K-nomial, broadcast and all-reduce: along a tree of radix 4 instead of 2, half as deep. For small
// messages: half the rounds, for at most 3/2 of the messages at the root. By the estimator faster
// for messages of up to some KB, by up to half.
//
// The parent of a number is that number without its lowest digit that is not 0. So for radix 4 the
// subtrees of a rank and of its up to three children of a level are aligned blocks of 4^level ranks
// that follow each other, and adding them up in this order is two levels of the canonical tree.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/trees/nearest_tree.h"
#include "algorithms/trees/tree_parts.h"

namespace tutti {
namespace {

struct KnomialTree {
  int parent = -1;                         // -1: this is the root.
  int ranks = 0;                           // In this subtree.
  std::vector<std::vector<Block>> levels;  // Children's subtrees, nearest first, ascending in rank.
  // With those in the largest subtrees first, numbers counted from `root`.
  std::vector<int> children(int root, int n) const {
    std::vector<int> all;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
      for (const Block& child : *level) all.push_back(wrap(child.first + root, n));
    }
    return all;
  }
};

// The place of `rank` in the tree of rank 0 over n ranks.
KnomialTree knomial_tree(int rank, int n, int radix) {
  KnomialTree tree;
  int size = 1;
  for (; size < n; size *= radix) {
    const int digit = rank / size % radix;
    if (digit != 0) {
      tree.parent = rank - digit * size;
      break;
    }
    std::vector<Block> children;
    for (int i = 1; i < radix && rank + i * size < n; ++i)
      children.push_back({rank + i * size, std::min(size, n - rank - i * size)});
    if (!children.empty()) tree.levels.push_back(children);
  }
  tree.ranks = std::min(size, n - rank);
  return tree;
}

template <int radix>
void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  // Numbers count from the root.
  const KnomialTree tree = knomial_tree(wrap(me.value - root, n), n, radix);
  pass_on(plan, 0, tree.parent < 0 ? -1 : wrap(tree.parent + root, n), tree.children(root, n));
}

void build_reduce(plan::Builder& plan, Rank me) {
  reduce_to(plan, me.value, plan.shape().root, 0, plan.output(0));
}

template <int radix>
void build_all_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const KnomialTree tree = knomial_tree(me.value, n, radix);
  const auto goal = tree.parent < 0 ? results(plan, 0, tree.children(0, n))
                                    : std::vector{plan.to(tree.parent, form_of(tree.ranks))};
  plan::Location sum = plan.input(0);
  if (tree.levels.empty()) plan.move(0, sum, goal);
  for (std::size_t level = 0; level < tree.levels.size(); ++level) {
    std::vector sources{sum};
    for (const Block& child : tree.levels[level])
      sources.push_back(plan.from(child.first, form_of(child.size)));
    sum = plan.scratch(0, Form::kPartial);
    plan.move(0, sources, level + 1 == tree.levels.size() ? goal : std::vector{sum});
  }
  if (tree.parent >= 0) pass_on(plan, 0, tree.parent, tree.children(0, n));
}

// The tree of gather and scatter: no rank below the root passes on more than n/2 blocks.
int parent_of(const plan::Shape& shape, int rank) {
  // Numbers count from the root: then the ranks below one are no more than lie behind it.
  const int n = shape.rank_count, number = wrap(rank - shape.root, n);
  return wrap(knomial_tree(number, n, 2).parent + shape.root, n);
}

}  // namespace

constinit const Algorithm binomial_all_reduce(
    "binomial", Collective::kAllReduce, build_all_reduce<2>,
    {.rounds = "<= 2k", .bytes = "k M", .peers = "k", .scratch = "1"},
    {.good_for = "small messages; the fewest messages in all"});

constinit const Algorithm binomial_broadcast("binomial", Collective::kBroadcast, build_broadcast<2>,
                                             {.rounds = "<= k", .bytes = "k M", .peers = "k"},
                                             {.good_for = "small messages, many ranks"});

constinit const Algorithm binomial_reduce(
    "binomial", Collective::kReduce, build_reduce,
    {.rounds = "<= k", .bytes = "M", .peers = "k", .scratch = "1"},
    {.good_for = "small messages, many ranks"});

constinit const Algorithm binomial_gather("binomial", Collective::kGather, gather_of<parent_of>,
                                          {.rounds = "<= k", .bytes = "<= M/2", .peers = "k"},
                                          {.sends_more = true, .good_for = "few channels"});

constinit const Algorithm binomial_scatter("binomial", Collective::kScatter, scatter_of<parent_of>,
                                           {.rounds = "<= k", .bytes = "(n-1)/n M", .peers = "k"},
                                           {.sends_more = true, .good_for = "few channels"});

constinit const Algorithm knomial_all_reduce(
    "knomial", Collective::kAllReduce, build_all_reduce<4>,
    {.rounds = "<= 2 ceil(k/2)",
     .bytes = "<= (k + floor(k/2)) M",
     .peers = "<= k + floor(k/2)",
     .scratch = "1"},
    {.good_for = "as `binomial`, radix 4: half the rounds, for messages up to some KB"});

constinit const Algorithm knomial_broadcast(
    "knomial", Collective::kBroadcast, build_broadcast<4>,
    {.rounds = "<= ceil(k/2)", .bytes = "<= (k + floor(k/2)) M", .peers = "<= k + floor(k/2)"},
    {.good_for = "as `binomial`, radix 4: half the rounds, for messages up to some KB"});

}  // namespace tutti
