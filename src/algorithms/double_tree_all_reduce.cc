// Double-tree all-reduce: half of the message is added up along each of two binary trees to rank 0
// and goes back the same way (double_tree.h). About 2 log2 n rounds; no rank sends more than twice
// the message, through 6 channels at most. The order of addition is the trees', so relaxed if n
// > 2.
//
// A tree's half is in parts, so that some go up while others come down, as both directions of a
// link have to be busy. In a time in which a part makes one hop, rank r at depth d takes part p,
// and sends up part p + 2d: so long takes the way to the root and back. So r lets 2d parts go up
// first, and then takes one and sends one by turns. One slot per channel is enough: every wait is
// for something that is earlier in that time, or at the same moment, but there come first the
// takers, the farthest from the root first, and then the senders, the nearest to the root first. Of
// P parts and D hops to the root, P of P + 2D moments are busy.
#include <algorithm>
#include <vector>

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
  for (int tree = 0; tree < 2; ++tree) {
    const BinaryTree place = double_tree(me, tree, plan.shape().rank_count, plan.shape().root);
    const bool leaf = place.children.empty();
    const auto results = [&](std::uint32_t piece) {
      std::vector<plan::Location> targets{plan.output(piece)};
      for (const int child : place.children) targets.push_back(plan.to(child, Form::kResult));
      return targets;
    };
    plan.lane(static_cast<std::size_t>(tree));
    const int ahead = std::min(2 * place.depth, kParts);
    for (int turn = 0; turn < kParts + ahead; ++turn) {
      if (turn >= ahead && place.parent >= 0) {
        const auto piece = chunk_of(tree * kParts + turn - ahead);
        const plan::Location down = plan.from(place.parent, Form::kResult);
        plan.move(piece, std::span(&down, 1), results(piece));
      }
      if (turn < kParts) {
        const auto piece = chunk_of(tree * kParts + turn);
        std::vector<plan::Location> sum;
        if (place.parent >= 0)
          sum.push_back(plan.to(place.parent, leaf ? Form::kContribution : Form::kPartial));
        add_up_tree(plan, me, piece, tree, place.parent < 0 ? results(piece) : sum);
      }
    }
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
