// File: plan/passes/draft.h: a lane in a form that passes can edit, and what all passes share.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

struct DraftStep {
  StepKind kind = StepKind::kMove;
  std::uint16_t peer = 0;
  std::uint32_t chunk = 0;
  std::vector<Location> sources, targets;
  std::vector<std::uint16_t> signals;  // Peers to signal right after a move.
};
using DraftLane = std::vector<DraftStep>;

DraftLane to_draft(const Lane& lane);
Lane to_lane(const DraftLane& draft);

/// Which steps `join_moves` may join.
enum class Join : std::uint8_t {
  kMemory,      // Those that leave rings alone. Never adds a wait.
  kAll,         // All. May need more slots than before, so the result has to be verified.
  kSameSource,  // Only moves that repeat their sources for other targets.
};

/// A move may have any number of targets.
inline constexpr std::uint32_t kAnyTargets = ~std::uint32_t{0};

/// Joins neighbouring moves of a lane (see fuse in passes.h), to at most so many targets each. True
/// if it changed something.
bool join_moves(DraftLane& lane, Join which, std::uint32_t most_targets = kAnyTargets);
/// The same for all lanes of a plan.
bool join_moves(Plan& plan, Join which, std::uint32_t most_targets = kAnyTargets);

/// A location where every chunk is cut into `shares`, each with scratch of its own: share `index`.
constexpr Location share_of(Location at, std::uint32_t index, std::uint32_t shares,
                            std::uint32_t scratch_chunks) {
  if (at.place == Place::kScratch)
    at.chunk += index * scratch_chunks;
  else if (!is_ring(at))
    at.chunk = at.chunk * shares + index;
  return at;
}

/// Sets every rank's scratch_chunks to what its steps use.
void trim_scratch(Plan& plan);

/// Whether `plan` verifies with so many slots per channel, however much scratch it asks for.
bool holds(const Plan& plan, std::uint32_t slots = 1);

}  // namespace tutti::plan
