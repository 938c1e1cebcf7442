// File: cuda/mesh/pages.h: a rank's steps in the form in which kernels' blocks read them, and which
// of them a block may take together.
#pragma once
#include <vector>

#include "kernels/cuda/interpreter.h"
#include "plan/plan.h"

namespace tutti::exec {

/// The steps of the rank's lanes, lane after lane: as many pages of each, at least one. `apart`: no
/// rank's input shares memory with its output (plan::Plan).
std::vector<cuda::LanePage> pages_of(const plan::RankPlan& rank, bool apart);

}  // namespace tutti::exec
