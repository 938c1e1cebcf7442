// File: algorithms/trees/along_tree.h: broadcast, reduce and all-reduce of pieces of the message
// along one tree, written once for the algorithms that send shares along several.
//
// A tree's pieces are steps of one lane, so that trees don't wait for each other. The order of
// addition is the tree's.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/builder.h"
#include "tutti/types.h"

namespace tutti {

/// Where a rank stands in a tree.
struct TreePlace {
  struct Child {
    int rank = 0;
    bool leaf = true;  // Has no children itself.
  };
  int parent = -1;  // -1: this is the root.
  int depth = 0;    // Edges to the root.
  std::vector<Child> children;
  std::vector<int> below() const {
    std::vector<int> ranks;
    for (const Child& child : children) ranks.push_back(child.rank);
    return ranks;
  }
};

/// From the root down to all, one step.
void broadcast_along(plan::Builder& plan, const TreePlace& place, std::uint32_t piece);

/// Adds up to the root, one step. By rank: two numbers come in canonical order.
void reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t piece);

/// Up and down at once, as both directions of a link have to be busy: some of the pieces from
/// `first` on go up while others come down. In a time in which a piece makes one hop, a rank at
/// depth d takes piece p, and sends up piece p + 2d: the way to the root and back is 2d hops. So
/// it lets 2d pieces go up first, and then takes one and sends one by turns. One slot per channel
/// is enough: every wait is for something that is earlier in that time, or at the same moment. At
/// one moment takers come first, the farthest from the root first, and then senders, the nearest
/// to the root first. With P pieces and D hops to the root, P of P + 2D moments are busy.
void all_reduce_along(plan::Builder& plan, Rank me, const TreePlace& place, std::uint32_t first,
                      std::uint32_t count);

}  // namespace tutti
