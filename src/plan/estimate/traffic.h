// File: plan/estimate/traffic.h: which channel every slot location of a plan is, for code that only
// counts.
//
// Channels are first in, first out, so the estimator needs no messages (wiring.h), only channels.
// They are numbered for plans of all ranks and for plans of a few (estimate.h): the channel from
// rank f to rank t is that from (f mod s) over the distance (t - f) mod n.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/ends.h"

namespace tutti::plan {

inline constexpr std::uint32_t kNoChannel = kNoMessage;

/// A ring or the signals from a rank to a reader. A multicast ring is n of them, one after the
/// other by distance; distance 0 is the writer's own, which no rank reads.
struct TrafficChannel {
  std::uint32_t from = 0;      // Among the ranks that the plan lists.
  std::uint32_t distance = 0;  // To the reader, modulo n.
  std::uint32_t lane = 0;
  bool is_signal = false;
};

/// The channels of one lane; of a multicast that is sent, the first.
using LaneTraffic = LaneWiring;

struct Traffic {
  std::uint32_t ranks = 0, listed = 0;  // n and s.
  std::vector<TrafficChannel> channels;
  std::vector<std::vector<LaneTraffic>> lanes;  // [rank][lane]

  /// Channels, one after the other, that a location of the plan stands for.
  std::uint32_t width(const Location& at) const {
    return at.place == Place::kMulticast ? ranks : 1;
  }
};

/// Linear in the plan, whose structure has to be sound (structure.h).
Traffic traffic(const Plan& plan);

}  // namespace tutti::plan
