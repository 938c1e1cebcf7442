// File: support/plan_mutator.h: plans with random mistakes; some of them still verify.
#pragma once
#include <random>
#include <utility>

#include "plan/chunks.h"
#include "plan/passes/draft.h"
#include "plan/plan.h"

namespace tutti::test {

enum class Mutation {
  kDeleteStep,
  kSwapSteps,
  kMoveStep,
  kRepeatStep,
  kSwapLocations,
  kDropLocation,
  kChunk,
  kPeer,
  kForm,
  kPlace,
  kStepChunk,
};
inline constexpr int kMutations = 11;

/// Changes a plan in one place at a time.
class Mutator {
 public:
  Mutator(plan::Plan plan, std::uint64_t seed) : plan_(std::move(plan)), random_(seed) {}

  /// The plan with one change; the same plan if the change did not apply.
  plan::Plan mutate(Mutation mutation) {
    const std::size_t rank = below(plan_.ranks.size());
    const std::size_t index = below(plan_.ranks[rank].lanes.size());
    plan::Lane& lane = plan_.ranks[rank].lanes[index];
    plan::DraftLane draft = to_draft(lane);
    if (!draft.empty()) change(draft, mutation);
    lane = to_lane(draft);
    return plan_;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  void change(plan::DraftLane& lane, Mutation mutation) {
    const std::size_t at = below(lane.size());
    const auto here = lane.begin() + static_cast<std::ptrdiff_t>(at);
    plan::DraftStep& step = lane[at];
    switch (mutation) {
      case Mutation::kDeleteStep: lane.erase(here); return;
      case Mutation::kSwapSteps:
        if (at + 1 < lane.size()) std::swap(lane[at], lane[at + 1]);
        return;
      case Mutation::kMoveStep: {
        plan::DraftStep moved = step;
        lane.erase(here);
        lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(lane.size() + 1)), moved);
        return;
      }
      case Mutation::kRepeatStep: {
        plan::DraftStep copy = step;
        lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(below(lane.size() + 1)), copy);
        return;
      }
      case Mutation::kPeer:
        if (step.kind != plan::StepKind::kMove) {
          step.peer = static_cast<std::uint16_t>(below(plan_.ranks.size()));
          return;
        }
        break;
      case Mutation::kStepChunk:
        step.chunk =
            static_cast<std::uint32_t>(below(plan::message_blocks(plan_.shape) * plan_.pieces));
        return;
      default: break;
    }
    if (step.kind == plan::StepKind::kMove) change_location(step, mutation);
  }

  void change_location(plan::DraftStep& step, Mutation mutation) {
    auto& locations = below(2) == 0 ? step.sources : step.targets;
    const std::size_t at = below(locations.size());
    plan::Location& location = locations[at];
    switch (mutation) {
      case Mutation::kSwapLocations:
        std::swap(location, below(4) == 0
                                ? (&locations == &step.sources ? step.targets : step.sources)[0]
                                : locations[below(locations.size())]);
        return;
      case Mutation::kDropLocation:
        if (locations.size() > 1)
          locations.erase(locations.begin() + static_cast<std::ptrdiff_t>(at));
        return;
      case Mutation::kChunk:
        location.chunk = static_cast<std::uint32_t>(below(plan_.ranks.size() * plan_.pieces));
        return;
      case Mutation::kPeer:
        location.peer = static_cast<std::uint16_t>(below(plan_.ranks.size()));
        return;
      case Mutation::kForm: location.form = static_cast<Form>(below(3)); return;
      case Mutation::kPlace: location.place = static_cast<plan::Place>(below(7)); return;
      default: return;
    }
  }

  plan::Plan plan_;
  std::mt19937_64 random_;
};

}  // namespace tutti::test
