// File: plan/structure.h: the part of verification that needs no execution.
//
// Everything that has to hold before a plan can be walked at all: indices in range, places where
// they may stand, forms that fit the collective, resources within limits, and normal form (unused
// fields are 0, locations lie in the order of their steps), so that equal plans compare equal.
#pragma once
#include <cstdint>

#include "plan/chunks.h"
#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::plan {

/// Most ranks in a plan: peers are 16-bit, and the largest value is kept free.
inline constexpr int kMaxRanks = 65535;
inline constexpr int kMaxWeight = 1024;

struct Limits {
  std::uint32_t slots = 1;                  // Slots per channel; a plan has to do with this many.
  std::uint32_t scratch_chunks = 1u << 16;  // Largest scratch that a plan may ask for.
};

/// kInvalidPlan with rank, lane, step and reason.
Status check_structure(const Plan& plan, const Limits& limits);

/// The error for a step: "plan NAME: rank R, lane L, step S: REASON".
Error step_error(const Plan& plan, std::uint32_t rank, std::uint32_t lane, std::size_t step,
                 const std::string& reason);

/// True if some step touches the mapped buffers of a peer.
bool touches_peers(const Plan& plan);

/// True if partial sums travel in slots: a value is then rounded more than twice, if slots are
/// encoded (tutti/wire.h).
bool sends_partials(const Plan& plan);

/// The root of a tree over so many ranks; -1: it is none, for a parent is missing or leads in a
/// circle, or has no weight that a tree may have.
int root_of(const SpanningTree& tree, int rank_count);

/// Chunks in the input of a rank that has one, and in the output of one that gets one.
inline std::uint32_t input_chunks(const Plan& plan) {
  return input_blocks(plan.shape) * plan.pieces;
}
inline std::uint32_t output_chunks(const Plan& plan) {
  return output_blocks(plan.shape) * plan.pieces;
}

}  // namespace tutti::plan
