#include "algorithms/trees/nearest_tree.h"

#include <array>

#include "algorithms/ranks.h"

namespace tutti {
namespace {

// `block` is one of 2^level ranks, before it is cut off.
int holder(const Block& block, int level, int root) {
  int rank = block.first;
  for (int bit = (1 << level) / 2; bit > 0; bit /= 2) {
    // The half with the root's bit, unless that half is cut off.
    if ((root & bit) != 0 && rank + bit < block.first + block.size) rank += bit;
  }
  return rank;
}

}  // namespace

NearestTree nearest_tree(int rank, int root, int n) {
  NearestTree tree;
  for (int level = 0; level < level_count(n); ++level) {
    const Block buddy = buddy_block(rank, level, n);
    if (buddy.size == 0) continue;
    const int other = holder(buddy, level, root);
    if ((((rank ^ root) >> level) & 1) != 0) {
      tree.parent = other;
      break;
    }
    tree.children.push_back({other, buddy.size});
  }
  return tree;
}

void reduce_to(plan::Builder& plan, int me, int root, std::uint32_t chunk,
               const std::vector<plan::Location>& results) {
  const NearestTree tree = nearest_tree(me, root, plan.shape().rank_count);
  const bool is_leaf = tree.children.empty();
  const Form form = is_leaf ? Form::kContribution : Form::kPartial;
  const auto goal = me == root ? results : std::vector{plan.to(tree.parent, form)};
  plan::Location mine = plan.input(chunk);
  if (is_leaf) plan.move(chunk, std::span(&mine, 1), goal);
  const plan::Location sum = plan.scratch(0, Form::kPartial);
  for (const auto& child : tree.children) {
    const plan::Location theirs = plan.from(child.rank, form_of(child.ranks));
    const std::array sources{child.rank < me ? theirs : mine, child.rank < me ? mine : theirs};
    const bool is_last = child.rank == tree.children.back().rank;
    plan.move(chunk, sources, is_last ? goal : std::vector{sum});
    mine = sum;
  }
}

}  // namespace tutti
