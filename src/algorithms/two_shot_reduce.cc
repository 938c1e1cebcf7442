// Two-shot reduce: everyone sends every rank its piece, each rank reduces its own in rank order,
// and sends the root the result. Two rounds; each rank but the root sends the message once: the
// bandwidth optimum. All ranks share the arithmetic.
#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const bool is_root = me.value == root;
  direct_reduce_part(plan, me,
                     is_root ? plan.output(chunk_of(me.value)) : plan.to(root, Form::kResult));
  for (int hop = 1; is_root && hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.from(peer, Form::kResult)}, {plan.output(chunk_of(peer))});
  }
}

}  // namespace

constinit const Algorithm two_shot_reduce{.name = "two_shot",
                                          .collective = Collective::kReduce,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = piece_per_rank,
                                          .build = build};

}  // namespace tutti
