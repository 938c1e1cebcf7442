// Hierarchical all-to-all: a block first goes, inside its innermost group, to the rank at the same
// place as the one that gets it, and from there to that one. So ranks of different groups exchange
// messages along rails of ranks at the same place only: with g ranks to a group and m groups a rank
// has g+m-2 neighbours, not g*m-1. Two rounds; what crosses between groups is no more than in
// direct.
//
// Groups exchange all blocks with one other group at a time (pairs.h), so that in place no block
// comes before the one that it overwrites is gone.
#include "algorithms/algorithm.h"
#include "algorithms/groups.h"
#include "algorithms/pairs.h"

namespace tutti {
namespace {

// A rank stands for one place of each group only where groups are full.
bool has_full_groups(const plan::Shape& shape) {
  return has_groups(shape) && shape.rank_count % shape.groups.sizes.front() == 0;
}

// Gives the ranks of my group what is for their places in the group from `first` on. What they have
// for my place there I send along my rail, and take what comes along it.
void meet_group(plan::Builder& plan, Rank me, const Block& mine, int first) {
  const int n = plan.shape().rank_count, place = me.value - mine.first, taker = first + place;
  for (int hop = 1; hop < mine.size; ++hop) {
    const int to = wrap(place + hop, mine.size);
    plan.move(block_of(me.value, first + to, n), plan.input(chunk_of(first + to)),
              plan.to(mine.first + to, Form::kResult));
  }
  // My counterpart; in my own group, myself.
  const auto along = [&](int giver) {
    return taker == me.value ? plan.output(chunk_of(giver)) : plan.to(taker, Form::kResult);
  };
  // First of all, as a block that comes may, in place, be written over it.
  plan.move(block_of(me.value, taker, n), plan.input(chunk_of(taker)), along(me.value));
  // The lower one of two ranks sends everything first, the other one takes everything first. So
  // one slot is enough, and a meeting is a chain of few messages (as in exchange.h).
  const bool leads = me.value <= taker;
  for (const bool sends : {leads, !leads}) {
    for (int hop = sends ? 1 : 0; hop < mine.size; ++hop) {
      const int from = wrap(place - hop, mine.size), giver = mine.first + from;
      if (sends) {
        plan.move(block_of(giver, taker, n), plan.from(giver, Form::kResult), along(giver));
      } else if (taker != me.value) {
        plan.move(block_of(first + from, me.value, n), plan.from(taker, Form::kResult),
                  plan.output(chunk_of(first + from)));
      }
    }
  }
}

void build(plan::Builder& plan, Rank me) {
  const Groups groups(plan.shape());
  const Block mine = groups.block(1, me.value);
  const int count = plan.shape().rank_count / mine.size, number = me.value / mine.size;
  meet_group(plan, me, mine, mine.first);
  for (int round = 0; round < meeting_rounds(count); ++round) {
    const int other = meets(number, round, count);
    if (other != number) meet_group(plan, me, mine, other * mine.size);
  }
}

}  // namespace

constinit const Algorithm hierarchical_all_to_all(
    "hierarchical", Collective::kAllToAll, build,
    {.rounds = "2", .bytes = "(2 - 1/g - g/n) M", .peers = "g + n/g - 2", .between = "(n - s) M"},
    {.applies = has_full_groups,
     .even = true,
     .sends_more = true,
     .good_for = "slow links between groups: along rails"});

}  // namespace tutti
