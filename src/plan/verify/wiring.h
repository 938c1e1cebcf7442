// File: plan/verify/wiring.h: which message every send and receive of a plan is.
//
// Rings and signals are first in, first out, and every lane runs its steps in order. So which slot
// a step reads does not depend on timing: the k-th slot that a lane sends to a peer is the k-th
// that the peer's lane reads. `wire` numbers them once, and everything that follows messages
// (verifier, passes, estimator) looks them up.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plan/ends.h"
#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::plan {

/// A ring, or the signals from one rank to another, in one lane. Its messages are numbered
/// [first, first + count).
struct Wire {
  WireKind kind = WireKind::kSlots;
  std::uint32_t from = 0;
  std::uint32_t to = 0;  // The writer itself for a multicast ring.
  std::uint32_t lane = 0;
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

/// Where in the plan a message is sent or received.
struct End {
  std::uint32_t rank = 0;
  std::uint32_t lane = 0;
  std::uint32_t step = 0;
};

struct Message {
  std::uint32_t wire = 0;
  End sender;
  End receiver;  // For a multicast: the reader with the highest rank.
};

struct Wiring {
  std::vector<Wire> wires;
  std::vector<Message> messages;
  std::vector<std::vector<LaneWiring>> lanes;  // [rank][lane]
};

/// Matches every send with its receive. The plan's structure has to be sound (structure.h).
/// kInvalidPlan if one side has more than the other.
Result<Wiring> wire(const Plan& plan);

}  // namespace tutti::plan
