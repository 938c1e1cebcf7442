// Joining steps saves a pass over memory, but a joined step waits for everything that its parts
// waited for, all at once, and that may be one slot more than there is. So the eager variant is
// verified, and where it would stand still, only steps that leave the rings alone are joined.
#include "plan/passes/draft.h"
#include "plan/passes/passes.h"

namespace tutti::plan {

Plan fuse(const Plan& plan, std::uint32_t slots, std::uint32_t most_targets) {
  for (const Join which : {Join::kAll, Join::kMemory}) {
    Plan fused = plan;
    if (!join_moves(fused, which, most_targets)) continue;
    fused.name += "+fuse";
    trim_scratch(fused);
    if (holds(fused, slots)) return fused;
  }
  return plan;
}

}  // namespace tutti::plan
