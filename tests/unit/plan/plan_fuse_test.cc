// The pass that joins steps: what it joins, what it leaves alone, and that fused plans compute the
// same, with as many slots as they were fused for.
#include <algorithm>
#include <string>

#include "kernels/cuda/interpreter.h"
#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/plan_simulator.h"
#include "support/plans.h"
#include "support/plans_by_hand.h"

using namespace tutti;

namespace {

// Sizes at the edges: fewer elements than pieces, one tile, more tiles than slots.
void check_computes(const plan::Plan& plan, std::uint32_t slots, std::uint64_t seed) {
  const Status status = plan::verify(plan, {.slots = slots});
  INFO((status ? "" : status.error().what));
  INFO(plan::to_text(plan));
  REQUIRE(status);
  for (const std::size_t count : {1, 5, 97}) {
    for (const bool in_place : {false, true}) {
      test::SimulationOptions options;
      options.count = count;
      options.tile = 2 + seed % 3;
      options.slots = slots;
      options.in_place = in_place;
      options.seed = seed;
      const auto failure = test::simulate(plan, options);
      INFO(failure.value_or(""));
      REQUIRE(!failure);
    }
  }
}

std::size_t steps_of(const plan::Plan& plan) {
  std::size_t steps = 0;
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) steps += lane.steps.size();
  }
  return steps;
}

std::uint32_t most_targets(const plan::Plan& plan) {
  std::uint32_t targets = 0;
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) {
      for (const plan::Step& step : lane.steps)
        targets = std::max<std::uint32_t>(targets, step.target_count);
    }
  }
  return targets;
}

}  // namespace

TEST_CASE("plans that devices fuse for their slots compute the same") {
  std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::size_t fewer = 0;
  test::for_each_plan({2, 3, 4, 8}, [&](const plan::Plan& plan) {
    const std::uint32_t slots = ++seed % 2 == 0 ? 2 : 4;
    const plan::Plan fused = plan::fuse(plan, slots, cuda::kMostTargets);
    if (fused == plan) return;
    ++fewer;
    check_computes(fused, slots, seed);
    check_computes(plan::replicate(fused, 2), slots, seed);
  });
  CHECK(fewer > 0);
}

TEST_CASE("fuse goes on without the stop in scratch") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand all_reduce ranks 2 pieces 1 contract deterministic
rank 0 scratch 3
lane 0
  move 0: input[0] -> scratch[2]:contribution
  move 0: scratch[2]:contribution -> to(1):contribution
  move 0: from(1):contribution -> scratch[1]:contribution
  move 0: input[0], scratch[1]:contribution -> scratch[0]:partial
  move 0: scratch[0]:partial -> output[0]
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  move 0: from(0):contribution, input[0] -> output[0]
)");
  const plan::Plan fused = plan::fuse(plan);
  CHECK(fused.name == "by_hand+fuse");
  CHECK(plan::to_text(fused, Rank{0}) ==
        "rank 0\n lane 0\n  move 0: input[0] -> to(1):contribution\n"
        "  move 0: input[0], from(1):contribution -> output[0]\n");
  check_computes(fused, 1, 1);
}

TEST_CASE("fuse keeps scratch that is read again") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand broadcast ranks 1 pieces 2 contract deterministic
rank 0 scratch 1
lane 0
  move 0: input[0] -> scratch[0]:result
  move 0: scratch[0]:result -> output[0]
  move 1: input[1] -> output[1]
  move 0: scratch[0]:result -> output[0]
)");
  const plan::Plan fused = plan::fuse(plan);
  CHECK(plan::to_text(fused, Rank{0}) ==
        "rank 0 scratch 1\n lane 0\n  move 0: input[0] -> scratch[0]:result, output[0]\n"
        "  move 1: input[1] -> output[1]\n  move 0: scratch[0]:result -> output[0]\n");
}

TEST_CASE("fuse gives no step more targets than the caller says") {
  for (const auto* algorithm : algorithms()) {
    const plan::Shape shape{algorithm->collective, 8, 0};
    if (!algorithm->applies(shape)) continue;
    const plan::Plan plan = build(*algorithm, shape);
    INFO(to_string(algorithm->collective) << " " << algorithm->name);
    CHECK(most_targets(plan::fuse(plan, 4, 1)) == most_targets(plan));
  }
  const plan::Plan two_shot = test::built(Collective::kAllReduce, "two_shot", 8);
  CHECK(plan::fuse(two_shot, 4, 16).name == "two_shot+fuse");
  CHECK(plan::fuse(two_shot, 4, 7) == two_shot);
}

TEST_CASE("fuse keeps a slot's copy in scratch that is read twice") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand all_reduce ranks 2 pieces 1 contract deterministic
rank 0 scratch 2
lane 0
  move 0: input[0] -> to(1):contribution
  move 0: from(1):contribution -> scratch[0]:contribution
  move 0: input[0], scratch[0]:contribution -> scratch[1]:partial
  move 0: input[0], scratch[0]:contribution -> output[0]
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  move 0: from(0):contribution, input[0] -> output[0]
)");
  const plan::Plan fused = plan::fuse(plan);
  check_computes(fused, 1, 1);
  CHECK(plan::to_text(fused, Rank{0}).find("from(1):contribution -> scratch[0]:contribution\n") !=
        std::string::npos);
}

TEST_CASE("fuse does not join what would stand still") {
  // Joined, the reduction would need room in a slot that its receiver gives back after its own.
  const plan::Plan plan = test::built(Collective::kAllReduce, "two_shot", 3);
  const plan::Plan fused = plan::fuse(plan);
  check_computes(fused, 1, 1);
  // With memory in place of slots nothing is in the way: see the direct plan in
  // plan_passes_test.cc.
  CHECK(steps_of(fused) <= steps_of(plan));
}
