// File: plan/verify/races.h: finds accesses to user buffers that nothing orders.
//
// Model. Events of one lane of one rank are ordered; lanes are not ordered at all within a call.
// Between ranks only two things order: a signal before its wait, and the sending of a slot before
// its reading, if the slot is of the lowest piece in its lane. (A tile of a higher piece may be
// empty, and then its slots are skipped, while a lower piece's tile is there: pieces never grow
// with their index. So a slot of the lowest piece is there whenever any other is.) That a full ring
// holds a sender back is not relied upon: the plan does not know how many slots there are.
//
// The caller. Between two calls a rank's caller may read its output and write both buffers, and the
// next plan may be any other. So an access to a peer's buffer has to come after that peer's
// start of the call, and before its end. This covers every pair of consecutive calls. Plans whose
// ranks start together (Plan::entry_barrier) come after every peer's start as they are.
//
// In place and out of place. Each chunk of output has two cells: one for the output alone, and one
// for the memory that output and input share when they are the same. Both have to be free of races.
//
// Implementation: vector clocks, checked as the simulation goes along. The simulation visits events
// in an order that keeps happens-before, so testing each access against the earlier ones finds
// every pair.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/chunks.h"
#include "plan/plan.h"
#include "plan/structure.h"
#include "tutti/result.h"

namespace tutti::plan {

/// A lane of a rank.
struct Actor {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  friend bool operator==(const Actor&, const Actor&) = default;
};

/// A message's knowledge of its sender's past. Empty: nothing.
struct Stamp {
  std::shared_ptr<const std::vector<std::uint32_t>> seen;
  std::uint32_t tick = 0;
};

class Races {
 public:
  explicit Races(const Plan& plan) : plan_(plan), chunks_(output_chunks(plan)) {
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

  /// Whether a slot of this chunk orders what is before it and after it.
  bool orders(std::uint32_t lane, std::uint32_t chunk) const {
    return chunk % plan_.pieces == lowest_[lane];
  }

  /// What to send along with a message of `actor` at `step`.
  Stamp stamp(Actor actor, std::size_t step) {
    Clock& mine = clock(actor);
    if (mine.shared == nullptr && !mine.seen.empty())
      mine.shared = std::make_shared<const std::vector<std::uint32_t>>(mine.seen);
    return {mine.shared, static_cast<std::uint32_t>(step + 1)};
  }

  /// `actor` has taken a message that `from`, in the same lane, sent with this stamp.
  void join(Actor actor, std::uint32_t from, const Stamp& stamp) {
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

  /// An access to chunk `chunk` of the input or output of `owner`; an error if it races.
  Status read_input(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk) {
    TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
    const std::uint32_t same = in_place_output(plan_, owner, chunk);
    return same == kNoChunk ? ok() : read(access(actor, step), owner, same, true);
  }

  Status read_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk) {
    TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
    TUTTI_RETURN_IF_ERROR(read(access(actor, step), owner, chunk, false));
    return read(access(actor, step), owner, chunk, true);
  }

  /// `self_copy`: in place this writes each byte onto itself. Executors skip that, so then it
  /// counts as a read.
  Status write_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk,
                      bool self_copy) {
    TUTTI_RETURN_IF_ERROR(check_entry(actor, step, owner));
    TUTTI_RETURN_IF_ERROR(write(access(actor, step), owner, chunk, false));
    return self_copy ? read(access(actor, step), owner, chunk, true)
                     : write(access(actor, step), owner, chunk, true);
  }

  /// At the end: an error if a rank may return while a peer still touches its buffers.
  Status finish() const {
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

 private:
  struct Access {
    Actor actor;
    std::uint32_t tick = 0;  // Step + 1; 0: none.
  };
  struct Cell {
    Access write;
    std::vector<Access> reads;  // Since that write; the last one of each actor.
  };
  struct Touch {
    Access access;
    std::uint32_t owner;
  };
  struct Clock {
    std::vector<std::uint32_t> seen;                           // By rank; empty: nothing seen yet.
    std::shared_ptr<const std::vector<std::uint32_t>> shared;  // A copy that stamps share.
  };

  Clock& clock(Actor actor) { return clocks_[first_clock_[actor.rank] + actor.lane]; }
  const Clock& clock(Actor actor) const { return clocks_[first_clock_[actor.rank] + actor.lane]; }
  static Access access(Actor actor, std::size_t step) {
    return {actor, static_cast<std::uint32_t>(step + 1)};
  }
  bool ordered(const Access& earlier, Actor now) const {
    if (earlier.tick == 0) return true;
    if (earlier.actor.lane != now.lane) return false;
    if (earlier.actor.rank == now.rank) return true;
    const Clock& mine = clock(now);
    return !mine.seen.empty() && mine.seen[earlier.actor.rank] >= earlier.tick;
  }

  Status check_entry(Actor actor, std::size_t step, std::uint32_t owner) {
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
  // `in_place` chooses the cell.
  Status read(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place) {
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

  Status write(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place) {
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
  Error race(const Access& earlier, const char* did, const Access& now, const char* does,
             std::uint32_t owner, std::uint32_t chunk, bool in_place) const {
    return step_error(
        plan_, now.actor.rank, now.actor.lane, now.tick - 1,
        fmt::format("race: {} output[{}] of rank {}{}, which rank {}, lane {}, step {} {}: "
                    "nothing orders the two",
                    does, chunk, owner, in_place ? " (in place)" : "", earlier.actor.rank,
                    earlier.actor.lane, earlier.tick - 1, did));
  }
  Cell& cell(std::uint32_t owner, std::uint32_t chunk, bool in_place) {
    return cells_[2 * (std::size_t{owner} * chunks_ + chunk) + (in_place ? 1 : 0)];
  }

  const Plan& plan_;
  std::uint32_t chunks_;  // Output chunks of a rank.
  std::vector<std::size_t> first_clock_;
  std::vector<Clock> clocks_;
  std::vector<std::uint32_t> lowest_;  // Piece in each lane.
  std::vector<Cell> cells_;
  std::vector<Touch> touches_;
};

}  // namespace tutti::plan
