// File: topology/embedding/trees.h: as much of an all-gather as a small network allows, as
// out-trees.
//
// The method of ForestColl (Zhao et al., arXiv 2402.06787): find the largest rate, cut capacities
// into units of which every root gets k trees, take the switches out (split.h), and grow
// spanning out-trees arc by arc so that the others always still fit (Edmonds 1973; many equal trees
// at once: Berczi and Frank 2010). With a k for which the units fit evenly this is the optimum. As
// few trees are wanted, k is the smallest that reaches 99 % (else 97, 95) of it. Trees grow from
// their roots breadth first, so that they are shallow.
#pragma once
#include "topology/embedding/split.h"

namespace tutti::topology {

struct TreePacking {
  static constexpr std::size_t kMostPlaces = 16;
  struct Hop {
    std::uint32_t from = 0, to = 0;
    std::vector<std::pair<std::uint32_t, double>> shares;  // By arc of the network: a unit flow.
  };
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// A tree for every root.
  struct Forest {
    std::int64_t weight = 0;             // Capacity that each tree takes.
    std::vector<std::uint32_t> parents;  // [root * places + place]: a hop; none of the root.
  };
  std::vector<Hop> hops;
  std::vector<Forest> forests;
};

/// Forests that fit the network together; no more than `enough` capacity a root is wanted. None if
/// the network has more than kMostPlaces, does not join all places, or is so uneven back and forth
/// that its switches can't be taken out. Time: milliseconds for 8 places, a second for 16.
TreePacking pack_trees(const SwitchedNetwork& network, std::int64_t enough);

}  // namespace tutti::topology
