// File: cuda/mesh/suits.h: which plans kernels can take. Without CUDA, for those that choose plans
// for devices elsewhere.
#pragma once
#include <string>

#include "plan/plan.h"

namespace tutti::exec {

/// Empty, or why kernels can't take the plan: "has multicasts".
std::string unsuited(const plan::Plan& plan);

}  // namespace tutti::exec
