// Hierarchical broadcast: the root deals the message out in its innermost group, one piece per
// place; a piece goes to all other groups, and in each from its deputy (groups.h) to the others.
// Among groups it goes along a binomial tree of the outermost ones first, then of those inside, so
// that it enters each other group of any level once. For one kind of groups, m of them, 2 +
// ceil(log2 m) rounds, and no rank of a full group of g sends more than ceil(log2 m)/g of the
// message to others.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "algorithms/parts.h"
#include "algorithms/trees/nearest_tree.h"

namespace tutti {
namespace {

std::uint32_t piece_per_place(const plan::Shape& shape) { return chunk_of(Groups(shape).size(1)); }

// An innermost group's place among the others.
struct GroupPlace {
  int above = -1;  // A rank of the group that it gets pieces from; -1: it is the root's.
  std::vector<int>
      below;  // One rank of each group that it hands pieces to, the largest part first.
};

GroupPlace place_of_group(const Groups& groups, int me, int root) {
  GroupPlace place;
  // A block gets the message through one group: the root's, or the one at the same place.
  for (int level = groups.top(); level > 1; --level) {
    const int entry = groups.deputy(level - 1, me, root);
    if (groups.block(1, entry).first != groups.block(1, me).first) continue;
    const int parts = groups.part_count(level, me);
    const int source = groups.part_of(level, root) % parts;  // Numbers count from this part.
    const auto group = [&](int number) {
      const int part = wrap(number + source, parts);
      return groups.deputy(level - 1, groups.first_of(level, me, part), root);
    };
    const int number = wrap(groups.part_of(level, me) - source, parts);
    const NearestTree tree = nearest_tree(number, 0, parts);
    for (const int child : tree.farthest_first()) place.below.push_back(group(child));
    if (tree.parent >= 0) place.above = group(tree.parent);
  }
  return place;
}

// The steps of rank `me` for a piece that it is the deputy for.
void hand_on(plan::Builder& plan, const Groups& groups, Rank me, int piece) {
  const int root = plan.shape().root;
  const GroupPlace place = place_of_group(groups, me.value, root);
  std::vector<int> to;
  for (const int group : place.below) to.push_back(groups.deputy(1, group, piece));
  const Block block = groups.block(1, me.value);
  for (int rank = block.first; rank < block.first + block.size; ++rank) {
    if (rank != me.value && rank != root) to.push_back(rank);
  }
  const int above = place.above < 0 ? root : groups.deputy(1, place.above, piece);
  pass_on(plan, chunk_of(piece), me.value == root ? -1 : above, to);
}

void build(plan::Builder& plan, Rank me) {
  const Groups groups(plan.shape());
  const int pieces = groups.size(1), turn = groups.block(1, me.value).size;
  const bool is_root = me.value == plan.shape().root;
  // In turns of one piece per rank of the group. The root first deals out, then sends its own
  // piece; the others take in that order.
  for (int first = 0; first < pieces; first += turn) {
    for (const bool own : {!is_root, is_root}) {
      for (int piece = first; piece < std::min(first + turn, pieces); ++piece) {
        const int deputy = groups.deputy(1, me.value, piece);
        if ((deputy == me.value) != own) continue;
        if (own) {
          hand_on(plan, groups, me, piece);
        } else if (is_root) {
          pass_on(plan, chunk_of(piece), -1, {deputy});
        } else {
          pass_on(plan, chunk_of(piece), deputy);
        }
      }
    }
  }
}

}  // namespace

constinit const Algorithm hierarchical_broadcast("hierarchical", Collective::kBroadcast, build,
                                                 {.rounds = "<= 2 + h",
                                                  .bytes = "(2(g-1) + h)/g M",
                                                  .peers = "n a multiple of g: g-1 + h",
                                                  .between = "(m-1) M"},
                                                 {.applies = has_groups,
                                                  .pieces = piece_per_place,
                                                  .good_for = "slow links between groups"});

}  // namespace tutti
