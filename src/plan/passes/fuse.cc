// Joining steps saves a pass over memory, but a joined step waits for everything that its parts
// waited for, all at once, and that may be one slot more than there is. So the eager variant is
// verified, and where it would stand still, only steps that leave the rings alone are joined.
#include "plan/passes/draft.h"
#include "plan/passes/passes.h"

namespace tutti::plan {

Plan fuse(const Plan& plan, std::uint32_t slots) {
  for (const Join which : {Join::kAll, Join::kMemory}) {
    Plan fused = plan;
    bool changed = false;
    for (RankPlan& rank : fused.ranks) {
      for (Lane& lane : rank.lanes) {
        DraftLane draft = to_draft(lane);
        if (!join_moves(draft, which)) continue;
        lane = to_lane(draft);
        changed = true;
      }
    }
    if (!changed) continue;
    fused.name += "+fuse";
    trim_scratch(fused);
    if (holds(fused, slots)) return fused;
  }
  return plan;
}

}  // namespace tutti::plan
