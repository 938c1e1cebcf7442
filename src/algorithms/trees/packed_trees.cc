// Packed trees: trees over all ranks that carry a share of the message each, so that together they
// use all links of a machine whose links are not alike.
//
// The trees are part of the shape, as groups and weights are: the planner packs them for the
// machine that it knows (planner/machine_trees.h). A tree with weight w has w shares of the message
// and a lane of its own. Any trees do: what fits the links is fast, the rest is only slow.
//
// Broadcast: shares go down the trees; no rank but the root gets anything twice: the bandwidth
// optimum, as good as the trees are packed. Reduce: the broadcast, reversed. All-reduce: shares are
// added up along the trees and go back the same way (along_tree.h). The order of addition is the
// trees', so relaxed but for trees that are canonical.
#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"
#include "algorithms/trees/along_tree.h"
#include "plan/structure.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "G. Wang et al.: Blink: Fast and Generic Collectives for Distributed ML. MLSys 2020 (the idea; "
    "there trees are found by multiplicative weights and chosen by an integer programme)";

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

constexpr std::uint32_t kMostShares = 1 << 16;

// A sum over the ranks of a node of the canonical tree, in canonical order; size 0: another one.
Block canonical_sum(std::span<const Block> terms, int n) {
  if (terms.size() == 1) return terms[0];
  const std::size_t left = std::bit_floor(terms.size() - 1);
  const Block a = canonical_sum(terms.first(left), n), b = canonical_sum(terms.subspan(left), n);
  if (a.size == 0 || b.size == 0) return {};
  const int half = a.size;
  const bool halves = std::has_single_bit(chunk_of(half)) && a.first % (2 * half) == 0 &&
                      b.first == a.first + half && b.size == std::min(half, n - b.first);
  return halves ? Block{a.first, a.size + b.size} : Block{};
}

// The block of inputs that a rank adds up, its own and those of all below it.
Block sum_below(const std::vector<TreePlace>& places, int rank) {
  const auto n = static_cast<int>(places.size());
  std::vector<std::pair<int, Block>> terms{{rank, {rank, 1}}};
  for (const auto& child : places[static_cast<std::size_t>(rank)].children)
    terms.emplace_back(child.rank, sum_below(places, child.rank));
  std::ranges::sort(terms, {}, &std::pair<int, Block>::first);
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

// There are trees, and if the collective has a root it is theirs.
bool has_trees(const plan::Shape& shape) {
  std::uint32_t shares = 0;
  for (const plan::SpanningTree& tree : shape.trees) {
    const int root = plan::root_of(tree, shape.rank_count);
    if (root < 0 || (has_root(shape.collective) && root != shape.root)) return false;
    shares = std::min(shares + static_cast<std::uint32_t>(tree.weight), kMostShares);
  }
  return shares > 0 && shares < kMostShares;
}

// Deterministic if all trees add up in canonical order: stars do, and trees of whole blocks.
constexpr ContractRule contract_of_trees{
    "relaxed but for canonical trees", [](const plan::Shape& shape) {
      const bool canonical = std::ranges::all_of(shape.trees, [&](const plan::SpanningTree& tree) {
        return adds_up_canonically(tree, shape.rank_count);
      });
      return canonical ? Contract::kDeterministic : Contract::kRelaxed;
    }};

// A piece for each share.
std::uint32_t piece_per_share(const plan::Shape& shape) {
  std::uint32_t shares = 0;
  for (const plan::SpanningTree& tree : shape.trees)
    shares += static_cast<std::uint32_t>(tree.weight);
  return shares;
}

// For each tree, in its lane: body(place, first, count), of the pieces of its shares, `parts`
// each.
template <class Body>
void in_each_tree(plan::Builder& plan, Rank me, std::uint32_t parts, Body body) {
  std::uint32_t first = 0;
  for (std::size_t index = 0; index < plan.shape().trees.size(); ++index) {
    const plan::SpanningTree& tree = plan.shape().trees[index];
    const std::uint32_t count = static_cast<std::uint32_t>(tree.weight) * parts;
    plan.lane(index);
    body(place_in(tree, me), first, count);
    first += count;
  }
}

void build_broadcast(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, 1, [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) broadcast_along(plan, place, first + i);
  });
}

void build_reduce(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, 1, [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) reduce_along(plan, me, place, first + i);
  });
}

// Pieces on the way in a tree, at least. More keep both directions of links busier in long messages
// and cost more steps in short ones; see double_tree.cc.
constexpr int kParts = 2;

std::uint32_t parts_of_share(const plan::Shape& shape) {
  int least = kParts;
  for (const plan::SpanningTree& tree : shape.trees) least = std::min(least, tree.weight);
  return static_cast<std::uint32_t>((kParts + least - 1) / least);
}

std::uint32_t parts_of_shares(const plan::Shape& shape) {
  return piece_per_share(shape) * parts_of_share(shape);
}

void build_all_reduce(plan::Builder& plan, Rank me) {
  in_each_tree(plan, me, parts_of_share(plan.shape()),
               [&](const TreePlace& place, std::uint32_t first, std::uint32_t count) {
                 all_reduce_along(plan, me, place, first, count);
               });
}

}  // namespace

constinit const Algorithm packed_trees_all_reduce(
    "packed_trees", Collective::kAllReduce, build_all_reduce,
    {.rounds = "2d", .bytes = "c M", .peers = "<= n-1"},
    {.applies = has_trees,
     .contract = contract_of_trees,
     .pieces = parts_of_shares,
     .good_for =
         "links that are not alike: parts of the message along trees that fit them together",
     .source = kSource});

constinit const Algorithm packed_trees_broadcast(
    "packed_trees", Collective::kBroadcast, build_broadcast,
    {.rounds = "d", .bytes = "c M", .peers = "<= n-1"},
    {.applies = has_trees,
     .pieces = piece_per_share,
     .good_for =
         "links that are not alike: parts of the message along trees that fit them together",
     .source = kSource});

constinit const Algorithm packed_trees_reduce("packed_trees", Collective::kReduce, build_reduce,
                                              {.rounds = "d", .bytes = "M", .peers = "<= n-1"},
                                              {.applies = has_trees,
                                               .contract = contract_of_trees,
                                               .pieces = piece_per_share,
                                               .good_for = "links that are not alike",
                                               .source = kSource});

}  // namespace tutti
