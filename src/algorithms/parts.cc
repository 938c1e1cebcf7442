#include "algorithms/parts.h"

#include "algorithms/ranks.h"

namespace tutti {

void share(plan::Builder& plan, Rank me, plan::Location own, std::vector<plan::Location> targets) {
  const plan::Location output = plan.output(chunk_of(me.value));
  if (own != output) targets.insert(targets.begin(), output);
  if (!targets.empty()) plan.move(chunk_of(me.value), std::span(&own, 1), targets);
}

void reduce_and_gather(plan::Builder& plan, Rank me, ReducePart reduce, GatherPart gather) {
  const plan::Location own = plan.output(chunk_of(me.value));
  reduce(plan, me, own);
  gather(plan, me, own);
}

void reduce_and_collect(plan::Builder& plan, Rank me, ReducePart part) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const bool is_root = me.value == root;
  part(plan, me, is_root ? plan.output(chunk_of(root)) : plan.to(root, Form::kResult));
  for (int hop = 1; is_root && hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.from(peer, Form::kResult)}, {plan.output(chunk_of(peer))});
  }
}

}  // namespace tutti
