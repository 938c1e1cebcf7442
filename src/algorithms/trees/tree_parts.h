// File: algorithms/trees/tree_parts.h: gather and scatter along any tree of ranks, written once for
// the algorithms that differ in the tree only.
//
// An inner rank passes on the blocks of all ranks below it, one slot each, from the slot they came
// in to the next: it needs no memory for them. All ranks go through their blocks in one order, by
// distance from the root. So every channel carries its blocks in that order, and the first block
// not yet at its end can always move: one slot per channel is enough, whatever the tree.
#pragma once
#include "plan/builder.h"
#include "tutti/types.h"

namespace tutti {

/// The rank above `rank` in the tree of shape.root; the root's own is not asked for. Climbing has
/// to end at the root.
using Parent = int(const plan::Shape& shape, int rank);

/// Adds the steps of a gather, or a scatter, of one piece per block along the tree.
void gather_along(plan::Builder& plan, Rank me, Parent parent);
void scatter_along(plan::Builder& plan, Rank me, Parent parent);
template <Parent* parent>
void gather_of(plan::Builder& plan, Rank me) {
  gather_along(plan, me, parent);
}
template <Parent* parent>
void scatter_of(plan::Builder& plan, Rank me) {
  scatter_along(plan, me, parent);
}

}  // namespace tutti
