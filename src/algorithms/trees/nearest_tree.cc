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

void reduce_to(plan::Builder& plan, int me, int root, std::uint32_t chunk, plan::Location result) {
  const NearestTree tree = nearest_tree(me, root, plan.shape().rank_count);
  const bool is_leaf = tree.children.empty();
  const plan::Location goal =
      me == root ? result : plan.to(tree.parent, is_leaf ? Form::kContribution : Form::kPartial);
  plan::Location mine = plan.input(chunk);
  if (is_leaf) plan.move(chunk, mine, goal);
  const plan::Location sum = plan.scratch(0, Form::kPartial);
  for (const auto& child : tree.children) {
    std::array sources{mine, plan.from(child.rank, form_of(child.ranks))};
    if (child.rank < me) std::swap(sources[0], sources[1]);
    plan.move(chunk, sources, child.rank == tree.children.back().rank ? goal : sum);
    mine = sum;
  }
}

}  // namespace tutti
