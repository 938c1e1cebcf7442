// File: algorithms/trees/double_tree.h: two binary trees over the same ranks, in which no rank but
// the root has children twice.
//
// Half of the message goes through each tree, in a lane of its own. A rank that forwards in one
// tree is a leaf of the other, so all ranks send about as much as they receive, and long messages
// move at full bandwidth although the trees have logarithmic depth.
//
// Both trees are over labels 0..n-1. Label 0 is the root, and its child is the root of a binary
// search tree over the others: the children of a label differ from it by half its lowest bit, so
// odd labels are leaves. The second tree swaps odd and even labels: it is the mirror image if n-1
// is even, and shifted by one otherwise.
#pragma once
#include "algorithms/trees/along_tree.h"
#include "tutti/types.h"

namespace tutti {

/// The place of `me` in tree 0 or 1 over n ranks, two children at most; both have the same root.
/// Time log n.
TreePlace double_tree(Rank me, int tree, int n, int root = 0);

}  // namespace tutti
