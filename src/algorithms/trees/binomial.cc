// Binomial: along a binomial tree, ceil(log2 n) deep. A rank has ceil(log2 n) neighbours at most.
//
// Broadcast: each rank that has the message hands it on, so that the ranks that have it double each
// round. ceil(log2 n) rounds, the optimum; the root sends the message up to ceil(log2 n) times.
//
// Reduce: the message is added up along the tree to the root. ceil(log2 n) rounds, the optimum;
// every rank but the root sends the message once. Canonical order, for every root.
//
// All-reduce: the reduce to rank 0, and back the same way. 2 ceil(log2 n) rounds at most; a leaf
// sends the message once, rank 0 sends it ceil(log2 n) times. Canonical order. The fewest messages
// in all, 2(n-1).
//
// Gather: blocks go up the tree to the root. ceil(log2 n) rounds; a rank sends n/2 blocks at most,
// where direct sends one: it buys few neighbours with bytes.
//
// Scatter: blocks go down the tree from the root. ceil(log2 n) rounds; the root sends n-1 blocks,
// another rank passes on less than n/2 of them.
#include <span>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/trees/nearest_tree.h"
#include "algorithms/trees/tree_parts.h"

namespace tutti {
namespace {

void build_broadcast(plan::Builder& plan, Rank me) {
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

void build_reduce(plan::Builder& plan, Rank me) {
  reduce_to(plan, me.value, plan.shape().root, 0, {plan.output(0)});
}

void build_all_reduce(plan::Builder& plan, Rank me) {
  const NearestTree tree = nearest_tree(me.value, 0, plan.shape().rank_count);
  std::vector<plan::Location> results{plan.output(0)};
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    results.push_back(plan.to(child->rank, Form::kResult));  // The largest subtree first.
  reduce_to(plan, me.value, 0, 0, results);
  if (tree.parent < 0) return;
  const plan::Location source = plan.from(tree.parent, Form::kResult);
  plan.move(0, std::span(&source, 1), results);
}

// The tree of gather and scatter: no rank below the root passes on more than n/2 blocks.
int parent_of(const plan::Shape& shape, int rank) {
  // Numbers count from the root: then the ranks below one are no more than lie behind it.
  const int n = shape.rank_count, number = wrap(rank - shape.root, n);
  return wrap(nearest_tree(number, 0, n).parent + shape.root, n);
}

void build_gather(plan::Builder& plan, Rank me) { gather_along(plan, me, parent_of); }

void build_scatter(plan::Builder& plan, Rank me) { scatter_along(plan, me, parent_of); }

}  // namespace

constinit const Algorithm binomial_all_reduce{
    .name = "binomial",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_reduce,
    .claims = {.rounds = "<= 2k",
               .bytes = "k M",
               .peers = "k",
               .scratch = "1",
               .good_for = "small messages; the fewest messages in all"}};

constinit const Algorithm binomial_broadcast{.name = "binomial",
                                             .collective = Collective::kBroadcast,
                                             .applies = always,
                                             .contract = deterministic,
                                             .pieces = one_piece,
                                             .build = build_broadcast,
                                             .claims = {.rounds = "<= k",
                                                        .bytes = "k M",
                                                        .peers = "k",
                                                        .scratch = "0",
                                                        .good_for = "small messages, many ranks"}};

constinit const Algorithm binomial_reduce{.name = "binomial",
                                          .collective = Collective::kReduce,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build_reduce,
                                          .claims = {.rounds = "<= k",
                                                     .bytes = "M",
                                                     .peers = "k",
                                                     .scratch = "1",
                                                     .good_for = "small messages, many ranks"}};

constinit const Algorithm binomial_gather{.name = "binomial",
                                          .collective = Collective::kGather,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build_gather,
                                          .claims = {.rounds = "<= k",
                                                     .bytes = "<= M/2",
                                                     .peers = "k",
                                                     .scratch = "0",
                                                     .sends_more = true,
                                                     .good_for = "few channels"}};

constinit const Algorithm binomial_scatter{.name = "binomial",
                                           .collective = Collective::kScatter,
                                           .applies = always,
                                           .contract = deterministic,
                                           .pieces = one_piece,
                                           .build = build_scatter,
                                           .claims = {.rounds = "<= k",
                                                      .bytes = "(n-1)/n M",
                                                      .peers = "k",
                                                      .scratch = "0",
                                                      .sends_more = true,
                                                      .good_for = "few channels"}};

}  // namespace tutti
