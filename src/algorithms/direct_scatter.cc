// Direct scatter: the root sends everyone their block. One round; the root sends n-1 blocks, the
// optimum.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, {plan.from(root, Form::kResult)}, {plan.output(0)});
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.input(chunk_of(peer))}, {plan.to(peer, Form::kResult)});
  }
  plan.move(mine, {plan.input(mine)}, {plan.output(0)});
}

}  // namespace

constinit const Algorithm direct_scatter{.name = "direct",
                                         .collective = Collective::kScatter,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = one_piece,
                                         .build = build};

}  // namespace tutti
