// Double-tree all-reduce: half of the message is added up along each of two binary trees to rank 0
// and goes back the same way (double_tree.h). About 2 log2 n rounds; no rank sends more than twice
// the message, through 6 channels at most. The order of addition is the trees', so relaxed if n
// > 2.
//
// A tree's half is in parts, so that some go up while others come down (along_tree.h).
#include "algorithms/algorithm.h"
#include "algorithms/double_tree.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

// Per tree. More parts keep links busier in long messages and cost more steps in short ones.
// Simulated (hgx-h100, 8 GPUs and 128), microseconds with 1, 2, 4 and 8 parts:
//   64 KiB   11.1   10.9   11.9   14.1     37.2   36.8   41.9   52.5
//   16 MiB    170    140    127    118      287    249    237    227
//   4 GiB   34516  25252  24517  23670    47053  38114  35013  35478
constexpr int kParts = 4;

std::uint32_t parts_of_trees(const plan::Shape&) { return 2 * kParts; }

void build(plan::Builder& plan, Rank me) {
  const plan::Shape& shape = plan.shape();
  for (int tree = 0; tree < 2; ++tree) {
    plan.lane(static_cast<std::size_t>(tree));
    all_reduce_along(plan, me, double_tree(me, tree, shape.rank_count, shape.root),
                     chunk_of(tree * kParts), kParts);
  }
}

}  // namespace

constinit const Algorithm double_tree_all_reduce{.name = "double_tree",
                                                 .collective = Collective::kAllReduce,
                                                 .applies = always,
                                                 .contract = deterministic_for_two,
                                                 .pieces = parts_of_trees,
                                                 .build = build};

}  // namespace tutti
