// File: plan/phases.h: which steps of a lane a block of threads may take together, as one phase
// with one look for slots and one release (kernels/cuda/interpret.h).
#pragma once
#include <cstddef>

#include "plan/plan.h"

namespace tutti::plan {

/// The most of a phase.
struct PhaseLimits {
  unsigned moves = 8;
  unsigned signals = 32;    // Or waits.
  unsigned locations = 32;  // Those of all its moves.
};

/// How many steps of the lane from `step` on, and before `end`, are of one kind and don't depend on
/// each other: moves that take slots of different rings and of which none writes what another one
/// reads or writes; signals to different peers, or waits for them. At least 1. `apart`: no rank's
/// input shares memory with its output (Plan).
unsigned phase_length(const Lane& lane, std::size_t step, std::size_t end, bool apart,
                      const PhaseLimits& limits = {});

}  // namespace tutti::plan
