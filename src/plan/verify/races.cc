#include "plan/verify/races.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/chunks.h"
#include "plan/structure.h"

namespace tutti::plan {

Races::Races(const Plan& plan) : plan_(plan), chunks_(output_chunks(plan)) {
  std::size_t actors = 0;
  for (const RankPlan& rank : plan.ranks) {
    first_clock_.push_back(actors);
    actors += rank.lanes.size();
    lowest_.resize(std::max(lowest_.size(), rank.lanes.size()), plan.pieces);
    for (std::size_t lane = 0; lane < rank.lanes.size(); ++lane) {
      for (const Step& step : rank.lanes[lane].steps) {
        if (step.kind == StepKind::kMove)
          lowest_[lane] = std::min(lowest_[lane], step.chunk % plan.pieces);
      }
    }
  }
  clocks_.resize(actors);
  cells_.resize(2 * std::size_t{chunks_} * plan.ranks.size());
}

Stamp Races::stamp(Actor actor, std::size_t step) {
  Clock& mine = clock(actor);
  if (mine.shared == nullptr && !mine.seen.empty())
    mine.shared = std::make_shared<const std::vector<std::uint32_t>>(mine.seen);
  return {mine.shared, static_cast<std::uint32_t>(step + 1)};
}

void Races::join(Actor actor, std::uint32_t from, const Stamp& stamp) {
  if (stamp.tick == 0) return;
  Clock& mine = clock(actor);
  mine.shared = nullptr;
  mine.seen.resize(plan_.ranks.size());
  if (stamp.seen != nullptr) {
    const std::uint32_t* theirs = stamp.seen->data();
    for (std::size_t rank = 0; rank < mine.seen.size(); ++rank)
      mine.seen[rank] = std::max(mine.seen[rank], theirs[rank]);
  }
  mine.seen[from] = std::max(mine.seen[from], stamp.tick);
}

bool Races::ordered(const Access& earlier, Actor now) const {
  if (earlier.tick == 0) return true;
  if (earlier.actor.lane != now.lane) return false;
  if (earlier.actor.rank == now.rank) return true;
  const Clock& mine = clock(now);
  return !mine.seen.empty() && mine.seen[earlier.actor.rank] >= earlier.tick;
}

Status Races::check_entry(Actor actor, std::size_t step, std::uint32_t owner) {
  if (owner == actor.rank) return ok();
  const Clock& mine = clock(actor);
  if (!plan_.entry_barrier && (mine.seen.empty() || mine.seen[owner] == 0)) {
    return step_error(
        plan_, actor.rank, actor.lane, step,
        fmt::format("race: touches the buffers of rank {0}, which may not have entered "
                    "the call: rank {0} has to signal it first",
                    owner));
  }
  touches_.push_back({access(actor, step), owner});
  return ok();
}

Status Races::read_input(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk) {
  TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
  const std::uint32_t same = in_place_output(plan_, owner, chunk);
  return same == kNoChunk ? ok() : read(access(actor, step), owner, same, true);
}

Status Races::read_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk) {
  TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
  TUTTI_RETURN_IF_ERROR(read(access(actor, step), owner, chunk, false));
  return read(access(actor, step), owner, chunk, true);
}

Status Races::write_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk,
                           bool self_copy) {
  TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
  TUTTI_RETURN_IF_ERROR(write(access(actor, step), owner, chunk, false));
  return self_copy ? read(access(actor, step), owner, chunk, true)
                   : write(access(actor, step), owner, chunk, true);
}

Status Races::read(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place) {
  Cell& memory = cell(owner, chunk, in_place);
  if (!ordered(memory.write, now.actor))
    return race(memory.write, "writes", now, "reads", owner, chunk, in_place);
  if (!memory.reads.empty() && memory.reads.back().actor == now.actor) {
    memory.reads.back() = now;
  } else {
    memory.reads.push_back(now);
  }
  return ok();
}

Status Races::write(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place) {
  Cell& memory = cell(owner, chunk, in_place);
  if (!ordered(memory.write, now.actor))
    return race(memory.write, "writes", now, "writes", owner, chunk, in_place);
  for (const Access& earlier : memory.reads) {
    if (!ordered(earlier, now.actor))
      return race(earlier, "reads", now, "writes", owner, chunk, in_place);
  }
  memory.reads.clear();
  memory.write = now;
  return ok();
}

Status Races::finish() const {
  for (const Touch& touch : touches_) {
    const auto& [actor, tick] = touch.access;
    const bool has_lane = actor.lane < plan_.ranks[touch.owner].lanes.size();
    if (has_lane && ordered(touch.access, {touch.owner, actor.lane})) continue;
    return step_error(
        plan_, actor.rank, actor.lane, tick - 1,
        fmt::format("race: touches the buffers of rank {0}, which may have left the call "
                    "already: rank {0} has to wait for a later signal",
                    touch.owner));
  }
  return ok();
}

Error Races::race(const Access& earlier, const char* did, const Access& now, const char* does,
                  std::uint32_t owner, std::uint32_t chunk, bool in_place) const {
  return step_error(
      plan_, now.actor.rank, now.actor.lane, now.tick - 1,
      fmt::format("race: {} output[{}] of rank {}{}, which rank {}, lane {}, step {} {}: "
                  "nothing orders the two",
                  does, chunk, owner, in_place ? " (in place)" : "", earlier.actor.rank,
                  earlier.actor.lane, earlier.tick - 1, did));
}

}  // namespace tutti::plan
