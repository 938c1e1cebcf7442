// File: planner/simulate/symmetry.h: plans of a few ranks, where all do the same.
//
// A ring on n ranks has 2 n^2 steps: on thousands of ranks it can't be built. But every rank does
// what rank 0 does, shifted. So where rank r + s does what rank r does, all peers shifted by s, the
// plan lists s ranks and the estimator takes the others to do as these (plan/estimate/estimate.h).
// Some ranks are compared for each of the s; the tests compare all, for smaller n. The machine
// plays no part here: the estimator tells apart ranks whose links differ.
#pragma once
#include <optional>

#include "algorithms/algorithm.h"

namespace tutti::planner {

/// The plan that lists the fewest ranks, fused; none if that would be more than half of all, or too
/// large. Chunks are as of the ranks that are listed: right for messages whose pieces are alike.
std::optional<plan::Plan> first_ranks(const Algorithm& algorithm, const plan::Shape& shape);

/// Steps and locations of a rank's plan.
std::size_t size_of_plan(const plan::RankPlan& rank);

}  // namespace tutti::planner
