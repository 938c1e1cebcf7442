// Hierarchical, for groups nested in groups: ranks of a host exchange among themselves, one rank
// per host and place with its counterparts in the other hosts of the rack, then of the other racks.
// A chunk crosses between two groups once, whatever their level. All-to-all and broadcast are in
// files of their own.
//
// The parts: chunk r belongs to rank r. Every block has a deputy for it (groups.h). To add up, the
// deputies of a block's parts send their sums to the block's deputy, level by level: one round for
// each level, and one for what is above the outermost groups. To hand out, the same backwards.
//
// A block goes through all chunks in an order that is common to its ranks, so that at each level at
// most one slot is on its way from a rank to another, and every rank sends before it takes: one
// slot per channel is enough. In a block that is cut off a rank is the deputy for several places;
// chunks are dealt with in turns of as many places as there are parts.
//
// With l nested kinds of groups:
//
// Reduce-scatter: groups add up among themselves first, and one sum per block leaves each group.
// l + 1 rounds.
//
// All-gather: a block enters each other group once and is handed on inside it. l + 1 rounds.
//
// All-reduce: reduce-scatter inside the innermost groups, then between them inside the next ones,
// and so on; and all-gather on the way back. 2(l + 1) rounds. A chunk enters and leaves a group
// once: a rank of a full group of g sends about 2/g of the message between groups, less than 2
// inside.
//
// Reduce: the reduce part, one sum per chunk leaving each group; then each rank sends the root its
// result. l + 2 rounds. All ranks share the arithmetic, and what is between groups.
//
// Gather: in every group a rank at the root's place takes the blocks of the others and passes them
// on, level by level. A block leaves each of its groups once at most, along the root's rail; the
// root has few neighbours.
//
// Scatter: the same rank takes the blocks of the others and hands them out, level by level. A block
// enters each of its groups once, along the root's rail; the root has few neighbours.
#include <functional>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"
#include "algorithms/trees/tree_parts.h"

namespace tutti {
namespace {

using plan::Location;

class Hierarchy {
 public:
  Hierarchy(plan::Builder& plan, Rank me) : plan_(plan), me_(me.value), groups_(plan.shape()) {}

  int top() const { return groups_.top(); }

  /// Adds up my block of `level`, for the chunks of the block of `chunk`. Where I am the deputy,
  /// the sum goes to `goal`.
  using Goal = std::function<Location(int chunk)>;
  void reduce(int level, int chunk, const Goal& goal) {
    const int parts = groups_.part_count(level, me_), mine = groups_.part_of(level, me_);
    for (int turn = 0; turn < groups_.part_count(level, chunk); turn += parts) {
      for (int hop = 1; hop <= parts; ++hop) {  // My part last: others wait longer.
        const int part = turn + (mine + hop) % parts;
        if (part >= groups_.part_count(level, chunk)) continue;
        const int first = groups_.first_of(level, chunk, part);
        if (part % parts == mine) {
          add_up(level, first, goal);
        } else {
          send_sum(level, first);
        }
      }
    }
  }

  /// Hands out, in my block of `level`, the chunks of the block of `chunk`, but for my own.
  void gather(int level, int chunk) {
    if (level == 0) return take(level, chunk);
    const int parts = groups_.part_count(level, me_), mine = groups_.part_of(level, me_);
    const int end = groups_.part_count(level, chunk);
    for (int turn = 0; turn < end; turn += parts) {
      if (turn + mine < end)
        take(level, groups_.first_of(level, chunk, turn + mine) + me_ % groups_.size(level - 1));
      for (int hop = 0; hop < parts; ++hop) {  // My part first: it is near.
        const int part = turn + wrap(mine - hop, parts);
        if (part < end) gather(level - 1, groups_.first_of(level, chunk, part));
      }
    }
  }

  /// The receivers of a chunk from the deputy of my block of `level`: the deputies of other parts,
  /// and those of its own part's.
  std::vector<Location> receivers(int level, int chunk) const {
    std::vector<Location> slots;
    for (; level > 0; --level) {
      const int parts = groups_.part_count(level, me_), mine = groups_.part_of(level, me_);
      for (int hop = 1; hop < parts; ++hop)
        slots.push_back(plan_.to(deputy(level, (mine + hop) % parts, chunk), Form::kResult));
    }
    return slots;
  }

 private:
  // The deputy for a chunk in a part of my block of `level`.
  int deputy(int level, int part, int chunk) const {
    return groups_.deputy(level - 1, groups_.first_of(level, me_, part), chunk);
  }
  Form form(int level, int part) const {
    return form_of(groups_.block(level - 1, groups_.first_of(level, me_, part)).size);
  }

  // Sends what my part of the block of `level` has to say about the block of chunks at `first`.
  void send_sum(int level, int first) {
    const auto deputy = [&](int chunk) {
      return plan_.to(groups_.deputy(level, me_, chunk), form(level, groups_.part_of(level, me_)));
    };
    if (level > 1) return reduce(level - 1, first, deputy);
    plan_.move(chunk_of(first), {plan_.input(chunk_of(first))}, {deputy(first)});
  }

  // Adds up the parts of my block of `level`, for my place in the block of chunks at `first`.
  void add_up(int level, int first, const Goal& goal) {
    const int chunk = first + me_ % groups_.size(level - 1), mine = groups_.part_of(level, me_);
    Location own = plan_.input(chunk_of(chunk));
    if (form(level, mine) == Form::kPartial) {
      own = plan_.scratch(chunk_of(level - 2), Form::kPartial);
      reduce(level - 1, first, [&](int) { return own; });
    }
    std::vector<Location> sums;
    for (int part = 0; part < groups_.part_count(level, me_); ++part) {
      sums.push_back(part == mine ? own
                                  : plan_.from(deputy(level, part, chunk), form(level, part)));
    }
    const Location target = goal(chunk);
    plan_.move(chunk_of(chunk), sums, std::span(&target, 1));
  }

  // Takes a chunk that my block of `level` gets through me, and hands it on in the block.
  void take(int level, int chunk) {
    if (level == top()) return;
    const int above = groups_.deputy(level + 1, me_, chunk);
    if (above == me_) return;
    std::vector<Location> targets = receivers(level, chunk);
    targets.insert(targets.begin(), plan_.output(chunk_of(chunk)));
    const Location source = plan_.from(above, Form::kResult);
    plan_.move(chunk_of(chunk), std::span(&source, 1), targets);
  }

  plan::Builder& plan_;
  int me_;
  Groups groups_;
};

void reduce_part(plan::Builder& plan, Rank me, Location result) {
  Hierarchy hierarchy(plan, me);
  hierarchy.reduce(hierarchy.top(), 0, [&](int) { return result; });
}

void gather_part(plan::Builder& plan, Rank me, Location own) {
  Hierarchy hierarchy(plan, me);
  share(plan, me, own, hierarchy.receivers(hierarchy.top(), me.value));
  hierarchy.gather(hierarchy.top(), 0);
}

void build_reduce_scatter(plan::Builder& plan, Rank me) { reduce_part(plan, me, plan.output(0)); }

void build_all_gather(plan::Builder& plan, Rank me) { gather_part(plan, me, plan.input(0)); }

void build_all_reduce(plan::Builder& plan, Rank me) {
  reduce_and_gather(plan, me, reduce_part, gather_part);
}

void build_reduce(plan::Builder& plan, Rank me) { reduce_and_collect(plan, me, reduce_part); }

// The tree of gather and scatter goes from a rank to its innermost group's deputy for the root, to
// the next group's, ... (groups.h).
int parent_of(const plan::Shape& shape, int rank) {
  const Groups groups(shape);
  for (int level = 1; level < groups.top(); ++level) {
    const int deputy = groups.deputy(level, rank, shape.root);
    if (deputy != rank) return deputy;
  }
  return shape.root;
}

void build_gather(plan::Builder& plan, Rank me) { gather_along(plan, me, parent_of); }

void build_scatter(plan::Builder& plan, Rank me) { scatter_along(plan, me, parent_of); }

}  // namespace

constinit const Algorithm hierarchical_all_reduce{
    .name = "hierarchical",
    .collective = Collective::kAllReduce,
    .applies = has_groups,
    .contract = hierarchical_contract,
    .pieces = piece_per_rank,
    .build = build_all_reduce,
    .claims = {.rounds = "2(l+1)",
               .bytes = "n a multiple of g: 2(n-1)/n M; other n: < 3(n-1)/n M",
               .peers = "n a multiple of g: p; other n: <= n-1",
               .scratch = "l",
               .between = "2(m-1) M",
               .good_for = "groups with fast links inside, slow ones between, nested at will"}};

constinit const Algorithm hierarchical_reduce_scatter{
    .name = "hierarchical",
    .collective = Collective::kReduceScatter,
    .applies = has_groups,
    .contract = hierarchical_contract,
    .pieces = one_piece,
    .build = build_reduce_scatter,
    .claims = {.rounds = "l+1",
               .bytes = "(n-1)/n M",
               .peers = "n a multiple of g: p; other n: <= n-1",
               .scratch = "l",
               .between = "(m-1) M",
               .even = true,
               .good_for = "slow links between groups"}};

constinit const Algorithm hierarchical_all_gather{
    .name = "hierarchical",
    .collective = Collective::kAllGather,
    .applies = has_groups,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_gather,
    .claims = {.rounds = "l+1",
               .bytes = "n a multiple of g: (n-1)/n M; other n: < 2(n-1)/n M",
               .peers = "n a multiple of g: p; other n: <= n-1",
               .scratch = "0",
               .between = "(m-1) M",
               .good_for = "slow links between groups"}};

constinit const Algorithm hierarchical_reduce{
    .name = "hierarchical",
    .collective = Collective::kReduce,
    .applies = has_groups,
    .contract = hierarchical_contract,
    .pieces = piece_per_rank,
    .build = build_reduce,
    .claims = {.rounds = "l+2",
               .bytes = "M",
               .peers = "n-1",
               .scratch = "l",
               .between = "(m-1 + o/n) M",
               .sends_more = true,
               .good_for = "slow links between groups; all ranks share the arithmetic"}};

constinit const Algorithm hierarchical_gather{
    .name = "hierarchical",
    .collective = Collective::kGather,
    .applies = has_groups,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_gather,
    .claims = {.rounds = "<= l+1",
               .bytes = "<= G/n M",
               .peers = "p",
               .scratch = "0",
               .between = "s = G: o/n M",
               .sends_more = true,
               .good_for = "the root has a neighbour per group, not per rank"}};

constinit const Algorithm hierarchical_scatter{
    .name = "hierarchical",
    .collective = Collective::kScatter,
    .applies = has_groups,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_scatter,
    .claims = {.rounds = "<= l+1",
               .bytes = "(n-1)/n M",
               .peers = "p",
               .scratch = "0",
               .between = "s = G: o/n M",
               .sends_more = true,
               .good_for = "the root has a neighbour per group, not per rank"}};

}  // namespace tutti
