// Double tree: half of the message goes through each of two binary trees (double_tree.h), in a lane
// of its own. Long messages flow through the trees tile by tile.
//
// Broadcast: each half goes down its tree: the bandwidth optimum for long messages. Reduce: the
// broadcast, reversed. The order of addition is the trees', so relaxed, but for two ranks, and for
// three with root 2.
//
// All-reduce: each half is added up along its tree to rank 0 and goes back the same way, in parts,
// so that some go up while others come down (along_tree.h). Relaxed if n > 2.
#include "algorithms/trees/double_tree.h"

#include <bit>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, "
    "reduction "
    "and scan. Parallel Computing 35 (2009)";

// Between labels and numbers of tree 1; 0 stays 0. `by` is 1 from number to label, -1 back.
int swap_parity(int number, int n, int by) {
  const int others = n - 1;
  if (number == 0) return 0;
  if (others % 2 == 0) return n - number;
  return (number - 1 + others + by) % others + 1;
}

int parent_of(int label, int n) {
  const int bit = label & -label;
  const int above = (label ^ bit) | (2 * bit);
  return above < n ? above : label ^ bit;
}

std::uint32_t piece_per_tree(const plan::Shape&) { return 2; }

// For each tree, in its lane: body(tree, my place in it).
template <class Body>
void in_both_trees(plan::Builder& plan, Rank me, Body body) {
  const plan::Shape& shape = plan.shape();
  for (int tree = 0; tree < 2; ++tree) {
    plan.lane(static_cast<std::size_t>(tree));
    body(tree, double_tree(me, tree, shape.rank_count, shape.root));
  }
}

void build_broadcast(plan::Builder& plan, Rank me) {
  in_both_trees(plan, me, [&](int tree, const TreePlace& place) {
    broadcast_along(plan, place, chunk_of(tree));
  });
}

void build_reduce(plan::Builder& plan, Rank me) {
  in_both_trees(plan, me, [&](int tree, const TreePlace& place) {
    reduce_along(plan, me, place, chunk_of(tree));
  });
}

// Parts of a tree's half in an all-reduce. More parts keep links busier in long messages and cost
// more steps in short ones. Simulated (hgx-h100, 8 GPUs and 128), microseconds with 1, 2, 4 and 8
// parts:
//   64 KiB   11.1   10.9   11.9   14.1     37.2   36.8   41.9   52.5
//   16 MiB    170    140    127    118      287    249    237    227
//   4 GiB   34516  25252  24517  23670    47053  38114  35013  35478
constexpr int kParts = 4;

std::uint32_t parts_of_trees(const plan::Shape&) { return 2 * kParts; }

void build_all_reduce(plan::Builder& plan, Rank me) {
  in_both_trees(plan, me, [&](int tree, const TreePlace& place) {
    all_reduce_along(plan, me, place, chunk_of(tree * kParts), kParts);
  });
}

}  // namespace

TreePlace double_tree(Rank me, int tree, int n, int root) {
  const auto rank_of = [&](int label) {
    return wrap(root + (tree == 0 ? label : swap_parity(label, n, -1)), n);
  };
  const auto child = [&](int label) { return TreePlace::Child{rank_of(label), label % 2 == 1}; };
  const int number = wrap(me.value - root, n);
  const int label = tree == 0 ? number : swap_parity(number, n, 1);
  const int bit = label & -label;
  TreePlace place;
  if (label != 0) place.parent = rank_of(parent_of(label, n));
  for (int above = label; above != 0; above = parent_of(above, n)) ++place.depth;
  if (bit > 1) place.children.push_back(child(label - bit / 2));
  // The upper half may be cut off; what is left of it has its root at the largest step that fits.
  int step = label == 0 ? static_cast<int>(std::bit_floor(chunk_of(n - 1))) : bit / 2;
  while (step > 0 && label + step >= n) step /= 2;
  if (step > 0) place.children.push_back(child(label + step));
  return place;
}

constinit const Algorithm double_tree_all_reduce(
    "double_tree", Collective::kAllReduce, build_all_reduce,
    {.rounds = "2k", .bytes = "2 M", .peers = "<= 4"},
    {.contract = deterministic_for_two,
     .pieces = parts_of_trees,
     .good_for = "long messages, many ranks: pipelined by parts, both ways at once",
     .source = kSource});

constinit const Algorithm double_tree_broadcast(
    "double_tree", Collective::kBroadcast, build_broadcast,
    {.rounds = "k", .bytes = "M", .peers = "<= 4"},
    {.pieces = piece_per_tree,
     .good_for = "long messages: pipelined by tiles, logarithmic depth",
     .source = kSource});

constinit const Algorithm double_tree_reduce(
    "double_tree", Collective::kReduce, build_reduce,
    {.rounds = "k", .bytes = "M", .peers = "<= 4"},
    {.contract = deterministic_for_chains,
     .pieces = piece_per_tree,
     .good_for = "long messages: pipelined by tiles, logarithmic depth",
     .source = kSource});

}  // namespace tutti
