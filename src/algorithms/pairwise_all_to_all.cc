// Pairwise all-to-all: each rank exchanges blocks with one peer at a time (pairs.h), and goes on to
// the next when it has the peer's block. n-1 blocks per rank, as direct; but never more than two
// messages on the way between a rank and the others, so no receiver is flooded. In place too: a
// block has gone into its slot before the peer's block takes its place.
#include "algorithms/algorithm.h"
#include "algorithms/pairs.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const auto mine = chunk_of(me.value);
  plan.move(block_of(me.value, me.value, n), plan.input(mine), plan.output(mine));
  for (int round = 0; round < meeting_rounds(n); ++round) {
    const int peer = meets(me.value, round, n);
    if (peer == me.value) continue;
    const auto theirs = chunk_of(peer);
    plan.move(block_of(me.value, peer, n), plan.input(theirs), plan.to(peer, Form::kResult));
    plan.move(block_of(peer, me.value, n), plan.from(peer, Form::kResult), plan.output(theirs));
  }
}

}  // namespace

constinit const Algorithm pairwise_all_to_all(
    "pairwise", Collective::kAllToAll, build,
    {.rounds = "1", .bytes = "(n-1)/n M", .peers = "n-1", .waits = "2 ceil(n/2) - 1"},
    {.even = true,
     .good_for = "networks that suffer from many senders to one: one partner at a time"});

}  // namespace tutti
