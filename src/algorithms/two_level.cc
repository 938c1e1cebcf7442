// The two-level parts: groups of neighbours among themselves, and one rank per group and place with
// its counterparts in the other groups, so that a chunk crosses between two groups once.
//
// Chunk r belongs to rank r, in place r % group_size of its group. In every other group the deputy
// of that place deals with it: it adds up its group's contributions and sends the sum to r, or
// takes the result from r and hands it to its group.
//
// Ranks of a group go through chunks group by group, and in a group that is cut off, where a rank
// is the deputy of several places, in turns of as many places as there are ranks. So in each turn
// at most one slot goes from a rank to a neighbour, and everyone sends before it takes: one slot
// per channel is enough. Between groups a channel carries one chunk per part.
#include <vector>

#include "algorithms/groups.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

using plan::Location;

// The chunks [first, last) that one turn is about.
template <class Turn>
void for_each_turn(const Groups& groups, int mine, int group, Turn turn) {
  const Block block = groups.block(group);
  for (int place = 0; place < block.size; place += groups.block(mine).size) {
    turn(block.first + place, block.first + std::min(place + groups.block(mine).size, block.size));
  }
}

// Adds up the inputs of my group for one chunk.
void add_up(plan::Builder& plan, const Block& group, Rank me, int chunk, Location goal) {
  std::vector<Location> sources;
  for (int rank = group.first; rank < group.first + group.size; ++rank) {
    sources.push_back(rank == me.value ? plan.input(chunk_of(chunk))
                                       : plan.from(rank, Form::kContribution));
  }
  plan.move(chunk_of(chunk), sources, std::span(&goal, 1));
}

}  // namespace

void two_level_reduce_part(plan::Builder& plan, Rank me, Location result) {
  const Groups groups(plan.shape());
  const int mine = groups.of(me.value);
  const Block neighbours = groups.block(mine);
  const Form form = form_of(neighbours.size);
  const Location sum =
      neighbours.size == 1 ? plan.input(chunk_of(me.value)) : plan.scratch(0, Form::kPartial);
  for (int hop = 1; hop <= groups.count; ++hop) {  // Own group last: others wait longer.
    const int group = (mine + hop) % groups.count;
    for_each_turn(groups, mine, group, [&](int first, int last) {
      int my_chunk = -1;
      for (int chunk = first; chunk < last; ++chunk) {
        const int deputy = groups.deputy(mine, chunk % groups.size);
        if (deputy == me.value) {
          my_chunk = chunk;
        } else {
          plan.move(chunk_of(chunk), {plan.input(chunk_of(chunk))},
                    {plan.to(deputy, Form::kContribution)});
        }
      }
      if (my_chunk < 0) return;
      if (group != mine) add_up(plan, neighbours, me, my_chunk, plan.to(my_chunk, form));
      if (group == mine && neighbours.size > 1) add_up(plan, neighbours, me, my_chunk, sum);
    });
  }
  std::vector<Location> sums;
  for (int group = 0; group < groups.count; ++group) {
    sums.push_back(group == mine ? sum
                                 : plan.from(groups.deputy(group, me.value % groups.size),
                                             form_of(groups.block(group).size)));
  }
  plan.move(chunk_of(me.value), sums, std::span(&result, 1));
}

void two_level_gather_part(plan::Builder& plan, Rank me, Location own) {
  const Groups groups(plan.shape());
  const int mine = groups.of(me.value);
  const Block neighbours = groups.block(mine);
  std::vector<Location> to_neighbours, targets;
  for (int hop = 1; hop < groups.count; ++hop) {
    const int group = (mine + hop) % groups.count;
    targets.push_back(plan.to(groups.deputy(group, me.value % groups.size), Form::kResult));
  }
  for (int hop = 1; hop < neighbours.size; ++hop) {
    const int place = wrap(me.value - neighbours.first + hop, neighbours.size);
    to_neighbours.push_back(plan.to(neighbours.first + place, Form::kResult));
  }
  targets.insert(targets.end(), to_neighbours.begin(), to_neighbours.end());
  share(plan, me, own, targets);
  for (int hop = 0; hop < groups.count; ++hop) {  // Own group first: it is near.
    const int group = (mine + groups.count - hop) % groups.count;
    for_each_turn(groups, mine, group, [&](int first, int last) {
      const auto deputy = [&](int chunk) { return groups.deputy(mine, chunk % groups.size); };
      for (int chunk = first; chunk < last && group != mine; ++chunk) {
        if (deputy(chunk) != me.value) continue;
        const Location source = plan.from(chunk, Form::kResult);
        targets = to_neighbours;
        targets.insert(targets.begin(), plan.output(chunk_of(chunk)));
        plan.move(chunk_of(chunk), std::span(&source, 1), targets);
      }
      for (int chunk = first; chunk < last; ++chunk) {
        if (deputy(chunk) == me.value) continue;
        plan.move(chunk_of(chunk), {plan.from(deputy(chunk), Form::kResult)},
                  {plan.output(chunk_of(chunk))});
      }
    });
  }
}

}  // namespace tutti
