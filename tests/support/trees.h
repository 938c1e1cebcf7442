// File: support/trees.h: spanning trees for shapes (plan/plan.h).
#pragma once
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "plan/plan.h"

namespace tutti::test {

/// Any tree over n ranks: each joins one that is there already.
template <class Random>
plan::SpanningTree random_tree(Random& random, int n, int root) {
  std::vector<int> ranks(static_cast<std::size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  std::iter_swap(ranks.begin(), std::find(ranks.begin(), ranks.end(), root));
  plan::SpanningTree tree{static_cast<int>(1 + random() % 3), std::vector<int>(ranks.size(), root)};
  for (std::size_t i = 1; i < ranks.size(); ++i)
    tree.parents[static_cast<std::size_t>(ranks[i])] = ranks[random() % i];
  return tree;
}

/// The same ones each time: with one root, as rooted collectives want them, and others.
inline std::vector<plan::SpanningTree> some_trees(Collective collective, int n, int root,
                                                  int count) {
  std::mt19937 random(static_cast<unsigned>(n * 1000 + root));
  std::vector<plan::SpanningTree> trees;
  for (int i = 0; i < count; ++i) {
    const int other = static_cast<int>(random() % static_cast<unsigned>(n));
    trees.push_back(random_tree(random, n, has_root(collective) ? root : other));
  }
  return trees;
}

/// All are children of the root.
inline plan::SpanningTree star(int n, int root) {
  return {1, std::vector<int>(static_cast<std::size_t>(n), root)};
}

/// From the root on, each rank's parent is the one before it.
inline plan::SpanningTree chain(int n, int root) {
  plan::SpanningTree tree = star(n, root);
  for (int hop = 1; hop < n; ++hop)
    tree.parents[static_cast<std::size_t>((root + hop) % n)] = (root + hop - 1) % n;
  return tree;
}

inline int depth_of(const plan::SpanningTree& tree) {
  int most = 0;
  for (int at : tree.parents) {
    int depth = 0;
    for (; tree.parents[static_cast<std::size_t>(at)] != at; ++depth)
      at = tree.parents[static_cast<std::size_t>(at)];
    most = std::max(most, depth + 1);
  }
  return tree.parents.size() == 1 ? 0 : most;
}

}  // namespace tutti::test
