// File: algorithms/groups.h: the groups of neighbouring ranks that a shape tells of.
#pragma once
#include <algorithm>

#include "algorithms/ranks.h"
#include "plan/plan.h"

namespace tutti {

/// Group `index` is ranks [index * group_size, (index + 1) * group_size), cut off at rank_count.
struct Groups {
  explicit Groups(const plan::Shape& shape)
      : ranks(shape.rank_count),
        size(shape.group_size),
        count((shape.rank_count + shape.group_size - 1) / shape.group_size) {}

  Block block(int index) const { return {index * size, std::min(size, ranks - index * size)}; }
  int of(int rank) const { return rank / size; }
  /// Who in group `index` stands for place `place` of a full group. In a group that is cut off a
  /// rank stands for several.
  int deputy(int index, int place) const { return block(index).first + place % block(index).size; }

  int ranks, size, count;
};

}  // namespace tutti
