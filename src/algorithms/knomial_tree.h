// File: algorithms/knomial_tree.h: the tree of radix 4, half as deep as the binomial one.
//
// The parent of a number is that number without its lowest base-4 digit that is not 0. So the
// subtrees of a rank and of its up to three children of a level are aligned blocks of 4^level ranks
// that follow each other, and adding them up in this order is two levels of the canonical tree.
//
// Half the rounds of a binomial tree, for at most 3/2 of its messages at the root: by the estimator
// faster for messages of up to some KB, by up to half.
#pragma once
#include <vector>

#include "algorithms/ranks.h"

namespace tutti {

struct KnomialTree {
  static constexpr int kRadix = 4;
  int parent = -1;                         // -1: this is the root.
  int ranks = 0;                           // In this subtree.
  std::vector<std::vector<Block>> levels;  // Children's subtrees, nearest first, ascending in rank.
};

/// The place of `rank` in the tree of rank 0 over n ranks.
inline KnomialTree knomial_tree(int rank, int n) {
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

}  // namespace tutti
