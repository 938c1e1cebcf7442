#include "algorithms/parts.h"

#include "algorithms/ranks.h"

namespace tutti {

void share(plan::Builder& plan, Rank me, plan::Location own, std::vector<plan::Location> targets) {
  const plan::Location output = plan.output(chunk_of(me.value));
  if (own != output) targets.insert(targets.begin(), output);
  if (!targets.empty()) plan.move(chunk_of(me.value), std::span(&own, 1), targets);
}

}  // namespace tutti
