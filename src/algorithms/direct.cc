// The direct parts: everyone to everyone in one round. n-1 messages per rank, each of one chunk.
#include <vector>

#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {

void direct_reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
  const int n = plan.shape().rank_count;
  for (int hop = 1; hop < n; ++hop) {  // Start with the next rank, so that not all begin with 0.
    const int peer = wrap(me.value + hop, n);
    plan.move(chunk_of(peer), {plan.input(chunk_of(peer))}, {plan.to(peer, Form::kContribution)});
  }
  const auto mine = chunk_of(me.value);
  std::vector<plan::Location> sources;
  for (int rank = 0; rank < n; ++rank)
    sources.push_back(rank == me.value ? plan.input(mine) : plan.from(rank, Form::kContribution));
  plan.move(mine, sources, std::span(&result, 1));
}

void direct_gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  std::vector<plan::Location> peers;
  for (int hop = 1; hop < n; ++hop)
    peers.push_back(plan.to(wrap(me.value + hop, n), Form::kResult));
  share(plan, me, own, peers);
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(me.value - hop, n);
    plan.move(chunk_of(peer), {plan.from(peer, Form::kResult)}, {plan.output(chunk_of(peer))});
  }
}

}  // namespace tutti
