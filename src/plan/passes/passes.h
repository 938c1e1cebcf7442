// File: plan/passes/passes.h: plan -> plan. A pass never changes what a plan computes.
//
// A pass adds its name to the plan's ("two_shot+direct"), verifies what it made with one slot per
// channel, and gives back nothing that does not hold: for a plan that does not verify itself, that
// is nothing, or the plan as it is. All are pure, and take about five times as long as verifying.
#pragma once
#include <compare>
#include <cstdint>
#include <optional>
#include <span>

#include "plan/plan.h"

namespace tutti::plan {

/// Joins steps of a lane: a value that is moved into scratch and read once more right after goes on
/// without the stop; a move repeated to another target becomes one move with two targets. The plan
/// itself where there is nothing to join. With more slots per channel more can be joined; a step
/// gets at most so many targets. For kernels of devices, to which each step costs barriers and a
/// fence, and for the simulator of machines (planner/simulate/); hosts run plans as they are built.
Plan fuse(const Plan& plan, std::uint32_t slots = 1,
          std::uint32_t most_targets = ~std::uint32_t{0});

/// By rank, of which host it is: ranks of a host reach each other's memory, others do not. Empty:
/// all do.
using HostOf = std::span<const int>;

/// Which buffers peers can map: those of all ranks, or of none.
struct Mapped {
  bool inputs = false, outputs = false;
  constexpr Mapped() = default;
  constexpr Mapped(bool both) : inputs(both), outputs(both) {}
  constexpr Mapped(bool those_inputs, bool those_outputs)
      : inputs(those_inputs), outputs(those_outputs) {}
  constexpr explicit operator bool() const { return inputs || outputs; }
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend constexpr auto operator<=>(const Mapped&, const Mapped&) = default;
};

/// For ranks that map each other's buffers, where they are of one host. A slot that carries a chunk
/// of the sender's input becomes a read of the mapped input; a slot that is only copied to the
/// receiver's output becomes a write to the mapped output; signals and waits take the place of the
/// slots. The other slots stay. If reads and writes together do not hold (in place, a write may
/// come before its chunk's old content was read), then reads alone or writes alone are tried; where
/// only inputs or only outputs are mapped, that is all there is. Empty when nothing can be lowered.
std::optional<Plan> direct(const Plan& plan, HostOf hosts = {}, Mapped mapped = true);

/// For ranks that get at each other's buffers by the kernel, only to copy them: the reads of
/// `direct` alone, or, where all blocks go to one rank, the writes alone; and only where nothing is
/// reduced. `shared`: of every message each end does half, the receiver reads it and the sender
/// writes it, where the plan allows it; for two ranks of which one would wait for the other.
std::optional<Plan> read(const Plan& plan, bool shared = false);

/// Slots that go to all other ranks from one step become one multicast slot. Empty when there are
/// none.
std::optional<Plan> multicast(const Plan& plan);

/// Cuts every piece into `lanes` and gives each lane its share; lane i becomes lanes i * `lanes`
/// and on. Scratch grows as much. The only pass that does not verify: the shares don't meet.
Plan replicate(const Plan& plan, std::uint32_t lanes);

/// The plan's lanes on each of these rank orders, with a share of every piece on each: rank
/// order[i] does what rank i does. So lanes of a ring take other links than those between
/// neighbouring ranks. Empty where that does not hold: a root has to keep its place, and ranks that
/// add up in canonical order theirs. Orders: permutations of all ranks, at least one.
std::optional<Plan> reorder(const Plan& plan, std::span<const RankOrder> orders);

}  // namespace tutti::plan
