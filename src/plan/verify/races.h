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
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.h"
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
  explicit Races(const Plan& plan);

  /// Whether a slot of this chunk orders what is before it and after it.
  bool orders(std::uint32_t lane, std::uint32_t chunk) const {
    return chunk % plan_.pieces == lowest_[lane];
  }
  /// What to send along with a message of `actor` at `step`.
  Stamp stamp(Actor actor, std::size_t step);
  /// `actor` has taken a message that `from`, in the same lane, sent with this stamp.
  void join(Actor actor, std::uint32_t from, const Stamp& stamp);

  /// An access to chunk `chunk` of the input or output of `owner`; an error if it races.
  Status read_input(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk);
  Status read_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk);
  /// `self_copy`: in place this writes each byte onto itself. Executors skip that, so then it
  /// counts as a read.
  Status write_output(Actor actor, std::size_t step, std::uint32_t owner, std::uint32_t chunk,
                      bool self_copy);
  /// At the end: an error if a rank may return while a peer still touches its buffers.
  Status finish() const;

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
  bool ordered(const Access& earlier, Actor now) const;
  Status check_entry(Actor actor, std::size_t step, std::uint32_t owner);
  // `in_place` chooses the cell.
  Status read(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place);
  Status write(const Access& now, std::uint32_t owner, std::uint32_t chunk, bool in_place);
  Error race(const Access& earlier, const char* did, const Access& now, const char* does,
             std::uint32_t owner, std::uint32_t chunk, bool in_place) const;
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
