// File: algorithms/trees/nearest_tree.h: a binomial tree for every root and any number of ranks,
// made of the nodes of the canonical tree.
//
// In the tree of `root`, the blocks of the canonical tree (ranks.h) have a holder: the rank whose
// number differs from the root's in the lowest bits only, that is, the least rank ^ root in the
// block. For two buddies, the holder that is farther from the root is a child of the nearer one. So
// the depth is level_count(n) at most; every rank but the root has one parent; on the way from a
// leaf to the root rank ^ root falls; and values that children send up are sums of whole blocks.
#pragma once
#include <vector>

#include "plan/builder.h"

namespace tutti {

struct NearestTree {
  struct Child {
    int rank = 0;
    int ranks = 0;  // In the block that it holds, itself included.
  };
  int parent = -1;              // -1: this is the root.
  std::vector<Child> children;  // Nearest first: the order in which the canonical tree adds them.
  /// The order in which results go down: the farthest child has most to do.
  std::vector<int> farthest_first() const {
    std::vector<int> ranks;
    for (const Child& child : children) ranks.insert(ranks.begin(), child.rank);
    return ranks;
  }
};

/// The place of `rank` in the tree of `root` over n ranks.
NearestTree nearest_tree(int rank, int root, int n);

/// Adds the steps of rank `me` that add up all ranks' input chunk `chunk` along the tree of `root`,
/// in canonical order; the root moves the sum to `result`. Uses scratch chunk 0 between steps.
void reduce_to(plan::Builder& plan, int me, int root, std::uint32_t chunk, plan::Location result);

}  // namespace tutti
