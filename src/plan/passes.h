// File: plan/passes.h: plan -> plan. A pass never changes what a plan computes; tests verify both.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/plan.h"

namespace tutti::plan {

/// Joins steps of a lane: a value that is moved into scratch and read once more right after goes on
/// without the stop; a move repeated to another target becomes one move with two targets.
Plan fuse(const Plan& plan);

/// For ranks that map each other's buffers. A slot that carries a chunk of the sender's input
/// becomes a read of the mapped input; a slot that is only copied to the receiver's output becomes
/// a write to the mapped output; signals and waits take the place of the slots. Empty when nothing
/// can be lowered.
std::optional<Plan> direct(const Plan& plan);

/// Slots that go to all other ranks from one step become one multicast slot. Empty when there are
/// none.
std::optional<Plan> multicast(const Plan& plan);

/// Cuts every piece into `lanes` and gives each lane its share.
Plan replicate(const Plan& plan, std::uint32_t lanes);

}  // namespace tutti::plan
