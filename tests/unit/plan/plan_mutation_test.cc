// The verifier judged by its mistakes. A verified plan is changed in one place. Mostly that breaks
// it, and the verifier has to say so; where it still accepts the plan, the plan has to compute the
// right bits under every interleaving that the simulator tries, out of place and in place. So a
// hole in the verifier shows as a plan that it lets through and the simulator does not.
#include <array>
#include <random>
#include <string>

#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/plan_mutator.h"
#include "support/plan_simulator.h"
#include "support/plans.h"

using namespace tutti;
using test::kMutations;
using test::Mutation;
using test::Mutator;

namespace {

struct Tally {
  std::array<int, kMutations> tried{}, rejected{};
};

void check_mutants(const plan::Plan& plan, std::uint64_t seed, Tally& tally) {
  for (int kind = 0; kind < kMutations; ++kind) {
    for (int trial = 0; trial < 4; ++trial) {
      const plan::Plan mutant = Mutator(plan, ++seed).mutate(static_cast<Mutation>(kind));
      if (mutant == plan) continue;
      ++tally.tried[static_cast<std::size_t>(kind)];
      if (!plan::verify(mutant)) {
        ++tally.rejected[static_cast<std::size_t>(kind)];
        continue;
      }
      for (std::uint64_t run = 0; run < 12; ++run) {
        test::SimulationOptions options;
        options.count = std::array<std::size_t, 4>{1, 2, 7, 12}[run % 4];
        options.tile = 3;
        options.in_place = run % 2 == 0;
        options.seed = seed + run;
        const auto failure = test::simulate(mutant, options);
        INFO("mutation " << kind << " with seed " << seed << " of\n" << plan::to_text(plan));
        INFO("gave\n" << plan::to_text(mutant));
        INFO(failure.value_or(""));
        REQUIRE(!failure);
      }
    }
  }
}

// True if some interleaving makes the plan go wrong.
bool simulator_objects(std::string_view text) {
  const auto plan = plan::parse(text);
  INFO((plan ? "" : plan.error().what));
  REQUIRE(plan);
  CHECK(!plan::verify(*plan));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    test::SimulationOptions options;
    options.seed = seed;
    options.in_place = seed % 2 == 0;
    if (test::simulate(*plan, options)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the verifier lets no plan through that computes something else") {
  const std::uint64_t start = Catch::rngSeed();
  INFO("start " << start);
  std::uint64_t seed = start;
  Tally tally;
  test::for_each_plan({2, 3, 4, 5}, [&](const plan::Plan& plan) {
    for (const auto& base : {std::optional(plan), plan::direct(plan), plan::multicast(plan),
                             std::optional(plan::replicate(plan, 2))}) {
      if (base) check_mutants(*base, seed += 1000, tally);
    }
  });
  int tried = 0, rejected = 0;
  for (std::size_t kind = 0; kind < kMutations; ++kind) {
    INFO("mutation " << kind << ": " << tally.rejected[kind] << " of " << tally.tried[kind]
                     << " rejected");
    CHECK(tally.tried[kind] > 0);
    CHECK(2 * tally.rejected[kind] > tally.tried[kind] / 2);
    tried += tally.tried[kind];
    rejected += tally.rejected[kind];
  }
  UNSCOPED_INFO(rejected << " of " << tried << " mutants rejected");
  CHECK(10 * rejected > 8 * tried);
}

// The property above is worth what the simulator sees. It sees these.
TEST_CASE("the simulator notices missing signals") {
  CHECK(simulator_objects(R"(
plan no_entry all_gather ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], output(1)[0]
  signal 1
  wait 1
rank 1
lane 0
  move 0: input[0] -> output[1], output(0)[1]
  signal 0
  wait 0
)"));
  CHECK(simulator_objects(R"(
plan no_exit broadcast ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  signal 1
  move 0: input[0] -> output[0]
rank 1
lane 0
  wait 0
  move 0: input(0)[0] -> output[0]
)"));
  CHECK(simulator_objects(R"(
plan one_shot all_reduce ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  signal 1
  wait 1
  move 0: input[0], input(1)[0] -> output[0]
  signal 1
  wait 1
rank 1
lane 0
  signal 0
  wait 0
  move 0: input(0)[0], input[0] -> output[0]
  signal 0
  wait 0
)"));
}
