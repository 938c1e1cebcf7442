// File: support/plans_by_hand.h: single plans for tests of passes.
#pragma once
#include <string_view>

#include "algorithms/algorithm.h"
#include "plan/text/text.h"
#include "support/catch.h"

namespace tutti::test {

/// A plan from its text, which has to be right.
inline plan::Plan read_plan(std::string_view text) {
  auto plan = plan::parse(text);
  INFO((plan ? "" : plan.error().what));
  REQUIRE(plan);
  return *plan;
}

/// What a registered algorithm builds, with root 0.
inline plan::Plan built(Collective collective, std::string_view name, int ranks) {
  const Algorithm* algorithm = find_algorithm(collective, name);
  REQUIRE(algorithm != nullptr);
  return build(*algorithm, {collective, ranks, 0, 1});
}

}  // namespace tutti::test
