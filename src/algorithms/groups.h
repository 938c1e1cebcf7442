// File: algorithms/groups.h: the nested groups of neighbouring ranks that a shape tells of.
#pragma once
#include <algorithm>
#include <vector>

#include "algorithms/ranks.h"
#include "plan/plan.h"

namespace tutti {

/// Level 0 are single ranks, level 1 the innermost groups, ...; the top level is one block of all
/// ranks. A block of a level consists of blocks of the level below: its parts.
///
/// Every block has a deputy for every chunk: the chunk's owner if it is in the block, else the rank
/// at the same place. So deputies of different blocks differ by whole blocks, and what they tell
/// each other goes along a "rail" of ranks at the same place. In a block that is cut off a rank
/// stands for several places.
class Groups {
 public:
  explicit Groups(const plan::Shape& shape) : ranks_(shape.rank_count), sizes_{1} {
    for (const int size : shape.groups.sizes) sizes_.push_back(size);
    sizes_.push_back(shape.rank_count);
  }

  int top() const { return static_cast<int>(sizes_.size()) - 1; }
  /// Ranks of a full block.
  int size(int level) const { return sizes_[static_cast<std::size_t>(level)]; }
  /// The block that `rank` is in.
  Block block(int level, int rank) const {
    const int first = rank - rank % size(level);
    return {first, std::min(size(level), ranks_ - first)};
  }
  /// The parts of the block of `level` that `rank` is in.
  int part_count(int level, int rank) const {
    return (block(level, rank).size + size(level - 1) - 1) / size(level - 1);
  }
  /// Which of them it is in itself.
  int part_of(int level, int rank) const { return rank % size(level) / size(level - 1); }
  /// The first rank of one of them.
  int first_of(int level, int rank, int part) const {
    return block(level, rank).first + part * size(level - 1);
  }
  /// The rank that handles `chunk` in the block of `level` that `rank` is in.
  int deputy(int level, int rank, int chunk) const {
    for (int below = level; below > 0; --below)
      rank = first_of(below, rank, part_of(below, chunk) % part_count(below, rank));
    return rank;
  }

 private:
  int ranks_;
  std::vector<int> sizes_;
};

}  // namespace tutti
