// The hierarchical parts, for groups nested in groups: ranks of a host among themselves, one rank
// per host and place with its counterparts in the other hosts of the rack, then of the other racks.
// A chunk crosses between two groups once, whatever their level.
//
// Chunk r belongs to rank r. Every block has a deputy for it (groups.h). To add up, the deputies of
// a block's parts send their sums to the block's deputy, level by level: one round for each level,
// and one for what is above the outermost groups. To hand out, the same backwards.
//
// A block goes through all chunks in an order that is common to its ranks, so that at each level at
// most one slot is on its way from a rank to another, and everyone sends before it takes: one slot
// per channel is enough. In a block that is cut off a rank is the deputy for several places; chunks
// are dealt with in turns of as many places as there are parts.
#include <functional>
#include <vector>

#include "algorithms/groups.h"
#include "algorithms/parts.h"

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

  /// To whom the deputy of my block of `level` hands a chunk on: the deputies of the other parts,
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
  // Who deals with a chunk in a part of my block of `level`.
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

}  // namespace

void hierarchical_reduce_part(plan::Builder& plan, Rank me, Location result) {
  Hierarchy hierarchy(plan, me);
  hierarchy.reduce(hierarchy.top(), 0, [&](int) { return result; });
}

void hierarchical_gather_part(plan::Builder& plan, Rank me, Location own) {
  Hierarchy hierarchy(plan, me);
  share(plan, me, own, hierarchy.receivers(hierarchy.top(), me.value));
  hierarchy.gather(hierarchy.top(), 0);
}

}  // namespace tutti
