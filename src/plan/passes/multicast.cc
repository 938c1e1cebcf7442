// A step that fills one slot for every other rank fills one multicast slot instead: one store that
// all see. The order of slots is no matter: a receiver takes the slots of a sender in the order in
// which they were sent, and dropping the others from that order keeps it. The verifier finds
// whether the shared ring holds a rank back that had a ring of its own before.
#include <algorithm>

#include "plan/passes/draft.h"
#include "plan/passes/passes.h"
#include "plan/verify/wiring.h"

namespace tutti::plan {
namespace {

// Replaces the slots of `step` to all other ranks by one multicast slot; the messages that it took
// the place of are marked. False if there are no such slots.
bool lower(DraftStep& step, const std::uint32_t* messages, std::size_t others,
           std::vector<bool>& lowered) {
  const auto is_slot = [](const Location& at) { return at.place == Place::kSlot; };
  const auto slots = static_cast<std::size_t>(std::ranges::count_if(step.targets, is_slot));
  if (slots != others)
    return false;  // A step fills at most one slot per peer, so this is all peers.
  const Form form = std::ranges::find_if(step.targets, is_slot)->form;
  if (std::ranges::any_of(step.targets, [&](auto& at) { return is_slot(at) && at.form != form; }))
    return false;
  for (std::size_t i = 0; i < step.targets.size(); ++i) {
    if (is_slot(step.targets[i])) lowered[messages[i]] = true;
  }
  std::erase_if(step.targets, is_slot);
  step.targets.push_back({Place::kMulticast, form, 0, 0});
  return true;
}

}  // namespace

std::optional<Plan> multicast(const Plan& plan) {
  if (plan.shape.rank_count == 1 || !holds(plan)) return std::nullopt;
  Plan result = plan;
  join_moves(result, Join::kSameSource);  // An algorithm may have written one for each peer.
  const auto wiring = wire(result);
  if (!wiring) return std::nullopt;
  std::vector<bool> lowered(wiring->messages.size());
  std::vector<std::vector<DraftLane>> drafts;
  bool any = false;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    auto& lanes = drafts.emplace_back();
    for (std::size_t lane = 0; lane < result.ranks[rank].lanes.size(); ++lane) {
      const Lane& steps = result.ranks[rank].lanes[lane];
      lanes.push_back(to_draft(steps));
      for (std::size_t i = 0; i < steps.steps.size(); ++i) {
        if (steps.steps[i].kind != StepKind::kMove) continue;
        const std::size_t target = steps.steps[i].first + steps.steps[i].source_count;
        any |= lower(lanes.back()[i], wiring->lanes[rank][lane].of_location.data() + target,
                     result.ranks.size() - 1, lowered);
      }
    }
  }
  if (!any) return std::nullopt;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    for (std::size_t lane = 0; lane < result.ranks[rank].lanes.size(); ++lane) {
      Lane& steps = result.ranks[rank].lanes[lane];
      const auto& messages = wiring->lanes[rank][lane].of_location;
      for (std::size_t i = 0; i < steps.steps.size(); ++i) {
        DraftStep& step = drafts[rank][lane][i];
        for (std::size_t source = 0; source < step.sources.size(); ++source) {
          const std::uint32_t message = messages[steps.steps[i].first + source];
          if (message != kNoMessage && lowered[message])
            step.sources[source].place = Place::kMulticast;
        }
      }
      steps = to_lane(drafts[rank][lane]);
    }
  }
  result.name += "+multicast";
  if (!holds(result)) return std::nullopt;
  return result;
}

}  // namespace tutti::plan
