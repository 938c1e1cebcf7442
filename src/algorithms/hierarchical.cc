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
// So one sum per chunk leaves each group, and a result enters each other group once: in an
// all-reduce a rank of a full group of g sends about 2/g of the message between groups, less than 2
// inside. A reduce is the reduce part; then each rank sends the root its result. So all ranks share
// the arithmetic, and what is between groups.
//
// Gather: in every group a rank at the root's place takes the blocks of the others and passes them
// on, level by level. Scatter: the same rank takes the blocks of the others and hands them out. A
// block leaves or enters each of its groups once at most, along the root's rail; the root has few
// neighbours.
#include <functional>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "algorithms/parts.h"
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
  std::vector<int> receivers(int level, int chunk) const {
    std::vector<int> ranks;
    for (; level > 0; --level) {
      const int parts = groups_.part_count(level, me_), mine = groups_.part_of(level, me_);
      for (int hop = 1; hop < parts; ++hop)
        ranks.push_back(deputy(level, (mine + hop) % parts, chunk));
    }
    return ranks;
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
    plan_.move(chunk_of(first), plan_.input(chunk_of(first)), deputy(first));
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
    plan_.move(chunk_of(chunk), sums, goal(chunk));
  }

  // Takes a chunk that my block of `level` gets through me, and hands it on in the block.
  void take(int level, int chunk) {
    if (level == top()) return;
    const int above = groups_.deputy(level + 1, me_, chunk);
    if (above != me_) pass_on(plan_, chunk_of(chunk), above, receivers(level, chunk));
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
  share(plan, chunk_of(me.value), own, hierarchy.receivers(hierarchy.top(), me.value));
  hierarchy.gather(hierarchy.top(), 0);
}

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

}  // namespace

constinit const Algorithm hierarchical_all_reduce(
    "hierarchical", Collective::kAllReduce, all_reduce_of<reduce_part, gather_part>,
    {.rounds = "2(l+1)",
     .bytes = "n a multiple of g: 2(n-1)/n M; other n: < 3(n-1)/n M",
     .peers = "n a multiple of g: p; other n: <= n-1",
     .scratch = "l",
     .between = "2(m-1) M"},
    {.applies = has_groups,
     .contract = hierarchical_contract,
     .pieces = piece_per_rank,
     .good_for = "groups with fast links inside, slow ones between, nested at will"});

constinit const Algorithm hierarchical_reduce_scatter(
    "hierarchical", Collective::kReduceScatter, reduce_scatter_of<reduce_part>,
    {.rounds = "l+1",
     .bytes = "(n-1)/n M",
     .peers = "n a multiple of g: p; other n: <= n-1",
     .scratch = "l",
     .between = "(m-1) M"},
    {.applies = has_groups,
     .contract = hierarchical_contract,
     .even = true,
     .good_for = "slow links between groups"});

constinit const Algorithm hierarchical_all_gather(
    "hierarchical", Collective::kAllGather, all_gather_of<gather_part>,
    {.rounds = "l+1",
     .bytes = "n a multiple of g: (n-1)/n M; other n: < 2(n-1)/n M",
     .peers = "n a multiple of g: p; other n: <= n-1",
     .between = "(m-1) M"},
    {.applies = has_groups, .good_for = "slow links between groups"});

constinit const Algorithm hierarchical_reduce(
    "hierarchical", Collective::kReduce, reduce_of<reduce_part>,
    {.rounds = "l+2", .bytes = "M", .peers = "n-1", .scratch = "l", .between = "(m-1 + o/n) M"},
    {.applies = has_groups,
     .contract = hierarchical_contract,
     .pieces = piece_per_rank,
     .sends_more = true,
     .good_for = "slow links between groups; all ranks share the arithmetic"});

constinit const Algorithm hierarchical_gather(
    "hierarchical", Collective::kGather, gather_of<parent_of>,
    {.rounds = "<= l+1", .bytes = "<= G/n M", .peers = "p", .between = "s = G: o/n M"},
    {.applies = has_groups,
     .sends_more = true,
     .good_for = "the root has a neighbour per group, not per rank"});

constinit const Algorithm hierarchical_scatter(
    "hierarchical", Collective::kScatter, scatter_of<parent_of>,
    {.rounds = "<= l+1", .bytes = "(n-1)/n M", .peers = "p", .between = "s = G: o/n M"},
    {.applies = has_groups,
     .sends_more = true,
     .good_for = "the root has a neighbour per group, not per rank"});

}  // namespace tutti
