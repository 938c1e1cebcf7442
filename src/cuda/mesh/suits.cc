#include "cuda/mesh/suits.h"

#include "exec/lane.h"
#include "kernels/cuda/interpreter.h"

namespace tutti::exec {

std::string unsuited(const plan::Plan& plan) {
  const auto is_multicast = [](const plan::Location& at) {
    return at.place == plan::Place::kMulticast;
  };
  if (any_location(plan, is_multicast)) return "has multicasts";
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) {
      for (const plan::Step& step : lane.steps) {
        if (step.kind != plan::StepKind::kMove) continue;
        if (step.source_count > cuda::kMostSources || step.target_count > cuda::kMostTargets) {
          return "has a step of " + std::to_string(step.source_count) + " sources and " +
                 std::to_string(step.target_count) + " targets; kernels take " +
                 std::to_string(cuda::kMostSources) + " and " + std::to_string(cuda::kMostTargets);
        }
      }
    }
  }
  return {};
}

}  // namespace tutti::exec
