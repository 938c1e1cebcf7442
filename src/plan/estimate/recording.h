// File: plan/estimate/recording.h: what a simulated plan did, and when: for pictures, and for tests
// that look inside the estimator (estimate.h).
//
// Steps and the messages between them, each pointing at the others it has to do with by its place
// in these lists. Ranks are those that the plan lists. Times are microseconds since the first lane
// could begin. Invariants, which tests/unit/plan/plan_recording_test.cc holds it to: steps of one
// lane follow one another; a message departs when its sender ends, and its receiver starts no
// earlier than it arrives; a step starts no earlier than the step that it waited for ended.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::plan {

struct Recording {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  /// What kept a step from starting when the one before it in its lane was done.
  enum class Waited : std::uint8_t { kForNothing, kForMessage, kForRoom };

  /// A step of the plan in one tile.
  struct Step {
    std::uint32_t rank = 0, lane = 0, step = 0;  // As in Plan::ranks.
    std::size_t tile = 0;
    double ready_us = 0;  // The step before it in its lane was done.
    double start_us = 0, end_us = 0;
    Waited waited = Waited::kForNothing;
    std::uint32_t after = kNone;  // The step that sent what came last, or that made room last.
  };
  /// A slot or a signal.
  struct Message {
    std::uint32_t from = 0, to = 0, lane = 0;
    std::uint32_t sender = kNone, receiver = kNone;  // Steps; no receiver: read later than this.
    double bytes = 0;                                // 0 for a signal.
    double departs_us = 0;
    double sent_us = 0;  // All links on its way have carried it.
    double arrives_us = 0;
  };

  std::vector<Step> steps;  // In the order in which they start.
  std::vector<Message> messages;
  double microseconds = 0;  // Until the last lane is done.
  /// Tiles of a lane that were simulated; fewer than there are, where the message is long.
  std::size_t tiles = 0, of_tiles = 0;
};

}  // namespace tutti::plan
