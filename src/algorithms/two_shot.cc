// Two-shot: every rank owns a piece of the message; the data goes to the owners in the first round
// and on from them in the second. Two rounds. All-reduce and reduce consist of the parts of
// direct.cc.
//
// All-reduce: every rank sends every owner its chunk; the owner reduces all of them in rank order
// and sends the result to all others. 2(n-1)/n of the message per rank: the bandwidth optimum, in
// canonical order.
//
// Reduce: the owners reduce in the same way, and send the root the result. Each rank but the root
// sends the message once: the bandwidth optimum. All ranks share the arithmetic.
//
// Broadcast: the root deals its pieces out, one to each other rank, and every rank passes its piece
// on to the rest. The root sends the message once, the others (n-2)/(n-1) of it: the bandwidth
// optimum.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build_all_reduce(plan::Builder& plan, Rank me) {
  reduce_and_gather(plan, me, direct_reduce_part, direct_gather_part);
}

void build_reduce(plan::Builder& plan, Rank me) {
  reduce_and_collect(plan, me, direct_reduce_part);
}

std::uint32_t piece_per_receiver(const plan::Shape& shape) {
  return chunk_of(std::max(1, shape.rank_count - 1));
}

void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (n == 1) return plan.move(0, {plan.input(0)}, {plan.output(0)});
  // Piece p is for the rank p + 1 behind the root.
  const auto receiver = [&](int piece) { return wrap(root + 1 + piece, n); };
  if (me.value == root) {
    for (int piece = 0; piece < n - 1; ++piece) {
      const auto chunk = chunk_of(piece);
      plan.move(chunk, {plan.input(chunk)},
                {plan.output(chunk), plan.to(receiver(piece), Form::kResult)});
    }
    return;
  }
  const int mine = wrap(me.value - root, n) - 1;
  const plan::Location source = plan.from(root, Form::kResult);
  std::vector<plan::Location> targets{plan.output(chunk_of(mine))};
  for (int hop = 1; hop < n - 1; ++hop)
    targets.push_back(plan.to(receiver(wrap(mine + hop, n - 1)), Form::kResult));
  plan.move(chunk_of(mine), std::span(&source, 1), targets);
  for (int hop = 1; hop < n - 1; ++hop) {
    const int piece = wrap(mine - hop, n - 1);
    plan.move(chunk_of(piece), {plan.from(receiver(piece), Form::kResult)},
              {plan.output(chunk_of(piece))});
  }
}

}  // namespace

constinit const Algorithm two_shot_all_reduce{
    .name = "two_shot",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_rank,
    .build = build_all_reduce,
    .claims = {.rounds = "2",
               .bytes = "2(n-1)/n M",
               .peers = "n-1",
               .scratch = "0",
               .even = true,
               .good_for = "large messages where all ranks reach each other; lowers to one step on "
                           "mapped memory"}};

constinit const Algorithm two_shot_broadcast{
    .name = "two_shot",
    .collective = Collective::kBroadcast,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_receiver,
    .build = build_broadcast,
    .claims = {.rounds = "2",
               .bytes = "M",
               .peers = "n-1",
               .scratch = "0",
               .good_for = "large messages where all ranks reach each other"}};

constinit const Algorithm two_shot_reduce{
    .name = "two_shot",
    .collective = Collective::kReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_rank,
    .build = build_reduce,
    .claims = {.rounds = "2",
               .bytes = "M",
               .peers = "n-1",
               .scratch = "0",
               .sends_more = true,
               .good_for = "large messages: all ranks share the arithmetic"}};

}  // namespace tutti
