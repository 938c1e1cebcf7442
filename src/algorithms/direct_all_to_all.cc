// Direct all-to-all: everyone sends every peer its block. One round of n-1 messages per rank, each
// of one block: the bandwidth optimum. In place too: a block has gone into its slot before the
// peer's block takes its place.
#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const auto block = [n](int from, int to) { return chunk_of(from) * chunk_of(n) + chunk_of(to); };
  plan.move(block(me.value, me.value), {plan.input(chunk_of(me.value))},
            {plan.output(chunk_of(me.value))});
  for (int hop = 1; hop < n; ++hop) {  // Start with the next rank, so that not all begin with 0.
    const int peer = wrap(me.value + hop, n);
    plan.move(block(me.value, peer), {plan.input(chunk_of(peer))}, {plan.to(peer, Form::kResult)});
  }
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(me.value - hop, n);
    plan.move(block(peer, me.value), {plan.from(peer, Form::kResult)},
              {plan.output(chunk_of(peer))});
  }
}

}  // namespace

constinit const Algorithm direct_all_to_all{.name = "direct",
                                            .collective = Collective::kAllToAll,
                                            .applies = always,
                                            .contract = deterministic,
                                            .pieces = one_piece,
                                            .build = build};

}  // namespace tutti
