// Two-level broadcast: the root deals the message out in its group, one piece per place; a piece
// goes from group to group along a binomial tree, and in each group from its deputy (groups.h) to
// the others. 2 + ceil(log2 m) rounds for m groups. A piece enters each other group once, and no
// rank of a full group of g sends more than ceil(log2 m)/g of the message to other groups.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "algorithms/nearest_tree.h"

namespace tutti {
namespace {

using plan::Location;

std::uint32_t piece_per_place(const plan::Shape& shape) { return chunk_of(shape.group_size); }

// What rank `me` does with a piece that it is the deputy for.
void hand_on(plan::Builder& plan, const Groups& groups, Rank me, int piece) {
  const int root = plan.shape().root, mine = groups.of(me.value), source = groups.of(root);
  const NearestTree tree = nearest_tree(wrap(mine - source, groups.count), 0, groups.count);
  const auto deputy = [&](int group) {  // Groups count from the root's.
    return groups.deputy(wrap(group + source, groups.count), piece);
  };
  std::vector<Location> targets{plan.output(chunk_of(piece))};
  for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
    targets.push_back(plan.to(deputy(child->rank), Form::kResult));  // Largest first.
  const Block block = groups.block(mine);
  for (int rank = block.first; rank < block.first + block.size; ++rank) {
    if (rank != me.value && rank != root) targets.push_back(plan.to(rank, Form::kResult));
  }
  const int above = mine == source ? root : deputy(tree.parent);
  const Location from =
      me.value == root ? plan.input(chunk_of(piece)) : plan.from(above, Form::kResult);
  plan.move(chunk_of(piece), std::span(&from, 1), targets);
}

void build(plan::Builder& plan, Rank me) {
  const Groups groups(plan.shape());
  const int mine = groups.of(me.value), turn = groups.block(mine).size;
  const bool is_root = me.value == plan.shape().root;
  // In turns of one piece per rank of the group. The root first deals out, then sends its own
  // piece; the others take in that order.
  for (int first = 0; first < groups.size; first += turn) {
    for (const bool own : {!is_root, is_root}) {
      for (int piece = first; piece < std::min(first + turn, groups.size); ++piece) {
        const auto chunk = chunk_of(piece);
        const int deputy = groups.deputy(mine, piece);
        if ((deputy == me.value) != own) continue;
        if (own) {
          hand_on(plan, groups, me, piece);
        } else if (is_root) {
          plan.move(chunk, {plan.input(chunk)},
                    {plan.output(chunk), plan.to(deputy, Form::kResult)});
        } else {
          plan.move(chunk, {plan.from(deputy, Form::kResult)}, {plan.output(chunk)});
        }
      }
    }
  }
}

}  // namespace

constinit const Algorithm two_level_broadcast{.name = "two_level",
                                              .collective = Collective::kBroadcast,
                                              .applies = has_groups,
                                              .contract = deterministic,
                                              .pieces = piece_per_place,
                                              .build = build};

}  // namespace tutti
