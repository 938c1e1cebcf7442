// Double-tree all-reduce: half of the message is added up along each of two binary trees to rank 0
// and goes back the same way (double_tree.h). About 2 log2 n rounds; no rank sends more than twice
// the message, through 6 channels at most. The order of addition is the trees', so relaxed if n
// > 2.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/double_tree.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  for (std::uint32_t piece = 0; piece < 2; ++piece) {
    const auto at = [&](int rank) { return double_tree(rank, static_cast<int>(piece), n); };
    const BinaryTree tree = at(me.value);
    std::vector<plan::Location> sources{plan.input(piece)}, results{plan.output(piece)};
    for (const int child : tree.children) {
      sources.push_back(
          plan.from(child, at(child).children.empty() ? Form::kContribution : Form::kPartial));
      results.push_back(plan.to(child, Form::kResult));
    }
    plan.lane(piece);
    if (tree.parent < 0) {
      plan.move(piece, sources, results);
      continue;
    }
    const Form form = tree.children.empty() ? Form::kContribution : Form::kPartial;
    const plan::Location up = plan.to(tree.parent, form);
    const plan::Location down = plan.from(tree.parent, Form::kResult);
    plan.move(piece, sources, std::span(&up, 1));
    plan.move(piece, std::span(&down, 1), results);
  }
}

}  // namespace

constinit const Algorithm double_tree_all_reduce{.name = "double_tree",
                                                 .collective = Collective::kAllReduce,
                                                 .applies = always,
                                                 .contract = deterministic_for_two,
                                                 .pieces = piece_per_tree,
                                                 .build = build};

}  // namespace tutti
