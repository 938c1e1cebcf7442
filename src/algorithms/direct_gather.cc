// Direct gather: everyone sends the root its block. One round; the root receives n-1 blocks, the
// optimum.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, {plan.input(0)}, {plan.to(root, Form::kResult)});
  plan.move(mine, {plan.input(0)}, {plan.output(mine)});
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.from(peer, Form::kResult)}, {plan.output(chunk_of(peer))});
  }
}

}  // namespace

constinit const Algorithm direct_gather{.name = "direct",
                                        .collective = Collective::kGather,
                                        .applies = always,
                                        .contract = deterministic,
                                        .pieces = one_piece,
                                        .build = build};

}  // namespace tutti
