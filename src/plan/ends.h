// File: plan/ends.h: numbers for the ends of messages, for code that follows them (plan/verify/
// wiring.h) or counts them by channel (plan/estimate/traffic.h).
#pragma once
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

inline constexpr std::uint32_t kNoMessage = ~std::uint32_t{0};

enum class WireKind : std::uint8_t { kSlots, kMulticast, kSignals };

/// The messages of one lane, or the channels.
struct LaneWiring {
  std::vector<std::uint32_t> of_location;  // kNoMessage where a location is no slot.
  std::vector<std::uint32_t> of_step;      // For signals and waits; kNoMessage for moves.
};

/// What `number(kind, from, to, is_send)` calls each end of a message in a lane of rank `me`. A
/// multicast goes to the writer itself where it is sent.
template <class Number>
LaneWiring numbered(const Lane& lane, std::uint32_t me, Number number) {
  LaneWiring found{std::vector(lane.locations.size(), kNoMessage),
                   std::vector(lane.steps.size(), kNoMessage)};
  for (std::size_t i = 0; i < lane.steps.size(); ++i) {
    const Step& step = lane.steps[i];
    if (step.kind != StepKind::kMove) {
      const bool sends = step.kind == StepKind::kSignal;
      found.of_step[i] = number(WireKind::kSignals, sends ? me : step.peer,
                                sends ? std::uint32_t{step.peer} : me, sends);
      continue;
    }
    for (std::uint32_t k = step.first; k < step.end(); ++k) {
      const Location& at = lane.locations[k];
      if (!is_ring(at)) continue;
      const bool sends = k >= step.first + step.source_count;
      const bool to_all = at.place == Place::kMulticast;
      found.of_location[k] = number(to_all ? WireKind::kMulticast : WireKind::kSlots,
                                    sends ? me : at.peer, sends && !to_all ? at.peer : me, sends);
    }
  }
  return found;
}

}  // namespace tutti::plan
