// File: trainer/strategies/shards.h: units that are cut into one shard for each rank.
//
// A unit of n values is padded to a multiple of the ranks, and rank r's shard is the r-th part. So
// reduce-scatter and all-gather take units as they are, in place too.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

class Shards {
 public:
  Shards(const std::vector<Unit>& units, std::size_t me, std::size_t ranks)
      : units_(units), me_(me), ranks_(ranks) {
    for (const Unit& unit : units_) {
      offsets_.push_back(shard_total_);
      shard_total_ += shard(unit.size);
      most_ = std::max(most_, shard(unit.size) * ranks_);
    }
  }
  /// Values of a unit's shard, the same on all ranks.
  std::size_t shard(std::size_t size) const { return (size + ranks_ - 1) / ranks_; }
  std::size_t shard_of(std::size_t unit) const { return shard(units_[unit].size); }
  /// Values of a padded unit, of the largest, and of all.
  std::size_t padded(std::size_t unit) const { return shard_of(unit) * ranks_; }
  std::size_t largest() const { return most_; }
  std::size_t padded_total() const { return shard_total_ * ranks_; }
  /// Where a unit begins in a vector of padded units.
  std::size_t padded_offset(std::size_t unit) const { return offsets_[unit] * ranks_; }
  /// Where a unit's shard begins in a vector of this rank's shards, and how long that is.
  std::size_t offset(std::size_t unit) const { return offsets_[unit]; }
  std::size_t total() const { return shard_total_; }

  /// This rank's shard of a unit, without padding: its values begin at `begin` of the unit.
  struct Own {
    std::size_t begin, size;
  };
  Own own(std::size_t unit) const {
    const std::size_t size = units_[unit].size, begin = std::min(size, me_ * shard_of(unit));
    return {begin, std::min(shard_of(unit), size - begin)};
  }

  /// Runs of this rank's shards, whose weights and gradients are where the functions say.
  template <class Weights, class Gradient>
  std::vector<Run> runs(Weights weights, Gradient gradient) const {
    std::vector<Run> runs;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      const Own mine = own(u);
      if (mine.size == 0) continue;
      runs.push_back({u, units_[u].offset + mine.begin, mine.size, weights(u), gradient(u)});
    }
    return runs;
  }

  Request reduce_scatter(std::size_t unit, const float* whole, float* shard) const {
    return {.collective = Collective::kReduceScatter,
            .input = whole,
            .output = shard,
            .count = shard_of(unit),
            .type = DataType::kFloat32};
  }
  Request all_gather(std::size_t unit, const float* shard, float* whole) const {
    return {.collective = Collective::kAllGather,
            .input = shard,
            .output = whole,
            .count = shard_of(unit),
            .type = DataType::kFloat32};
  }

 private:
  const std::vector<Unit>& units_;
  std::size_t me_, ranks_;
  std::vector<std::size_t> offsets_;
  std::size_t shard_total_ = 0, most_ = 0;
};

/// Sums values of all ranks: for optimisers that need norms of units that are sharded.
inline std::function<Status(std::span<double>)> sum_over(Traffic& traffic) {
  return [&traffic](std::span<double> values) {
    return traffic.all_reduce(values.data(), values.size(), DataType::kFloat64);
  };
}

}  // namespace tutti::trainer
