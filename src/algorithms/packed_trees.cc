#include "algorithms/packed_trees.h"

#include <algorithm>
#include <span>
#include <vector>

#include "algorithms/ranks.h"
#include "plan/structure.h"

namespace tutti {
namespace {

constexpr std::uint32_t kMostShares = 1 << 16;

// A sum over the ranks of a node of the canonical tree, in canonical order; size 0: another one.
Block canonical_sum(std::span<const Block> terms, int n) {
  if (terms.size() == 1) return terms[0];
  std::size_t left = 1;
  while (2 * left < terms.size()) left *= 2;
  const Block a = canonical_sum(terms.first(left), n), b = canonical_sum(terms.subspan(left), n);
  if (a.size == 0 || b.size == 0) return {};
  int half = 1;
  while (half < a.size) half *= 2;
  const bool halves = half == a.size && a.first % (2 * half) == 0 && b.first == a.first + half &&
                      b.size == std::min(half, n - b.first);
  return halves ? Block{a.first, a.size + b.size} : Block{};
}

// What a rank adds up from itself and all below it.
Block sum_below(const std::vector<TreePlace>& places, int rank) {
  const auto n = static_cast<int>(places.size());
  std::vector<std::pair<int, Block>> terms{{rank, {rank, 1}}};
  for (const auto& child : places[static_cast<std::size_t>(rank)].children)
    terms.emplace_back(child.rank, sum_below(places, child.rank));
  std::sort(terms.begin(), terms.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<Block> blocks;
  for (const auto& [at, block] : terms) {
    if (block.size == 0) return {};
    blocks.push_back(block);
  }
  return canonical_sum(blocks, n);
}

bool adds_up_canonically(const plan::SpanningTree& tree, int n) {
  std::vector<TreePlace> places;
  for (int rank = 0; rank < n; ++rank) places.push_back(place_in(tree, Rank{rank}));
  return sum_below(places, plan::root_of(tree, n)).size == n;
}

}  // namespace

bool has_trees(const plan::Shape& shape) {
  std::uint32_t shares = 0;
  for (const plan::SpanningTree& tree : shape.trees) {
    const int root = plan::root_of(tree, shape.rank_count);
    if (root < 0 || (has_root(shape.collective) && root != shape.root)) return false;
    shares = std::min(shares + static_cast<std::uint32_t>(tree.weight), kMostShares);
  }
  return shares > 0 && shares < kMostShares;
}

Contract contract_of_trees(const plan::Shape& shape) {
  const bool canonical = std::all_of(
      shape.trees.begin(), shape.trees.end(),
      [&](const plan::SpanningTree& tree) { return adds_up_canonically(tree, shape.rank_count); });
  return canonical ? Contract::kDeterministic : Contract::kRelaxed;
}

std::uint32_t piece_per_share(const plan::Shape& shape) {
  std::uint32_t shares = 0;
  for (const plan::SpanningTree& tree : shape.trees)
    shares += static_cast<std::uint32_t>(tree.weight);
  return shares;
}

TreePlace place_in(const plan::SpanningTree& tree, Rank me) {
  const auto parent = [&](int rank) { return tree.parents[static_cast<std::size_t>(rank)]; };
  TreePlace place;
  if (parent(me.value) != me.value) place.parent = parent(me.value);
  for (int at = me.value; parent(at) != at; at = parent(at)) ++place.depth;
  std::vector<bool> leaf(tree.parents.size(), true);
  for (const int above : tree.parents) leaf[static_cast<std::size_t>(above)] = false;
  for (int rank = 0; rank < static_cast<int>(tree.parents.size()); ++rank) {
    if (rank != me.value && parent(rank) == me.value)
      place.children.push_back({rank, leaf[static_cast<std::size_t>(rank)]});
  }
  return place;
}

}  // namespace tutti
