// File: algorithms/ranks.h: arithmetic on ranks that several algorithms share.
//
// The canonical tree splits at the largest power of two below n. So its inner nodes are the aligned
// blocks [k * 2^level, (k + 1) * 2^level), cut off at n: the node of a block adds the block's two
// halves, and a half that is cut off altogether adds nothing. An algorithm that combines at
// distance 1 first, then 2, 4, ... with the lower block first evaluates the tree, whatever n is.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/form.h"
#include "plan/plan.h"

namespace tutti {

/// `rank` modulo n, for ranks below 0 and beyond n too.
constexpr int wrap(int rank, int n) { return (rank % n + n) % n; }

/// The chunk with a rank's number.
constexpr std::uint32_t chunk_of(int rank) { return static_cast<std::uint32_t>(rank); }

/// The other ranks in order, the next one first: so not all begin with rank 0.
inline std::vector<int> ranks_after(int rank, int n) {
  std::vector<int> ranks;
  for (int hop = 1; hop < n; ++hop) ranks.push_back(wrap(rank + hop, n));
  return ranks;
}
/// The same backwards.
inline std::vector<int> ranks_before(int rank, int n) {
  std::vector<int> ranks = ranks_after(rank, n);
  std::ranges::reverse(ranks);
  return ranks;
}

/// The chunk of an all-to-all that `giver` gives `taker`.
constexpr std::uint32_t block_of(int giver, int taker, int n) {
  return chunk_of(giver) * chunk_of(n) + chunk_of(taker);
}

/// Levels of the canonical tree: the least k with 2^k >= n.
constexpr int level_count(int n) { return std::bit_width(chunk_of(n - 1)); }

/// Consecutive ranks.
struct Block {
  int first = 0;
  int size = 0;
};

/// The other half of the block of 2^(level + 1) ranks that `rank` is in; size 0 if it is cut off.
constexpr Block buddy_block(int rank, int level, int n) {
  const int first = ((rank >> level) ^ 1) << level;
  return {first, std::clamp(n - first, 0, 1 << level)};
}

/// The form in which the sum over `ranks` ranks travels.
constexpr Form form_of(int ranks) { return ranks == 1 ? Form::kContribution : Form::kPartial; }

/// Two numbers have one canonical order, and every algorithm keeps to it.
inline constexpr ContractRule deterministic_for_two{
    "relaxed if n > 2", [](const plan::Shape& shape) {
      return shape.rank_count <= 2 ? Contract::kDeterministic : Contract::kRelaxed;
    }};

/// The same for reduces that may be a chain to the root: the canonical tree of three numbers is a
/// chain from 0 to 2.
inline constexpr ContractRule deterministic_for_chains{
    "relaxed if n > 3, or n = 3 and the root is not 2", [](const plan::Shape& shape) {
      return shape.rank_count == 3 && shape.root == 2 ? Contract::kDeterministic
                                                      : deterministic_for_two(shape);
    }};

/// Groups of neighbours, more than one of them and not of single ranks. Nested ones have to be
/// full; where groups are of one kind only, the last may be cut off.
inline bool has_groups(const plan::Shape& shape) {
  const auto& sizes = shape.groups.sizes;
  return !sizes.empty() && 1 < sizes.front() && sizes.back() < shape.rank_count &&
         (sizes.size() == 1 || shape.rank_count % sizes.back() == 0);
}

/// Groups of a power of two are nodes of the canonical tree; others lie across its nodes.
inline constexpr ContractRule hierarchical_contract{
    "deterministic if group sizes are powers of two", [](const plan::Shape& shape) {
      for (const int size : shape.groups.sizes) {
        if ((size & (size - 1)) != 0) return Contract::kRelaxed;
      }
      return Contract::kDeterministic;
    }};

}  // namespace tutti
