// Chunk c becomes chunks c * lanes + 0 ... lanes - 1, and copy l of a lane handles the l-th of
// each. Scratch is not shared between lanes, so every copy has its own.
#include <fmt/format.h>

#include "base/check.h"
#include "plan/passes/draft.h"
#include "plan/passes/passes.h"

namespace tutti::plan {

Plan replicate(const Plan& plan, std::uint32_t lanes) {
  TUTTI_CHECK(lanes > 0);
  TUTTI_CHECK(std::uint64_t{plan.pieces} * lanes <= 0xffffffffu);
  if (lanes == 1) return plan;
  Plan result = plan;
  result.name += fmt::format("+lanes{}", lanes);
  result.pieces = plan.pieces * lanes;
  for (RankPlan& rank : result.ranks) {
    std::vector<Lane> copies;
    for (const Lane& lane : rank.lanes) {
      for (std::uint32_t copy = 0; copy < lanes; ++copy) {
        Lane& share = copies.emplace_back(lane);
        for (Step& step : share.steps) {
          if (step.kind == StepKind::kMove) step.chunk = step.chunk * lanes + copy;
        }
        for (Location& at : share.locations) at = share_of(at, copy, lanes, rank.scratch_chunks);
      }
    }
    rank.lanes = std::move(copies);
    rank.scratch_chunks *= lanes;
  }
  return result;
}

}  // namespace tutti::plan
