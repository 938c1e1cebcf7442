// Direct: each rank sends straight to the rank that needs the data. One round.
//
// Reduce-scatter: every rank sends every owner its block; the owner reduces all of them in rank
// order. n-1 blocks per rank: the bandwidth optimum, in canonical order.
//
// All-gather: every rank sends its block to all others. n-1 blocks per rank: the bandwidth optimum.
//
// Broadcast: the root sends the message to all others, n-1 times. The least latency there is, and
// one store for all where the channel can multicast.
//
// Reduce: every rank sends the root the message; the root receives n-1 messages and reduces all in
// rank order. The least latency there is.
//
// Gather: every rank sends the root its block. The root receives n-1 blocks, the optimum.
//
// Scatter: the root sends every rank its block. The root sends n-1 blocks, the optimum.
//
// All-to-all: every rank sends every peer its block, n-1 messages of one block: the bandwidth
// optimum. In place too: a block has gone into its slot before the peer's block takes its place.
//
// Reduce-scatter and all-gather are parts (parts.h): two-shot consists of them too (two_shot.cc).
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build_reduce_scatter(plan::Builder& plan, Rank me) {
  direct_reduce_part(plan, me, plan.output(0));
}

void build_all_gather(plan::Builder& plan, Rank me) { direct_gather_part(plan, me, plan.input(0)); }

void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (me.value != root) return plan.move(0, {plan.from(root, Form::kResult)}, {plan.output(0)});
  const plan::Location input = plan.input(0);
  std::vector<plan::Location> targets{plan.output(0)};
  for (int hop = 1; hop < n; ++hop) targets.push_back(plan.to(wrap(root + hop, n), Form::kResult));
  plan.move(0, std::span(&input, 1), targets);
}

void build_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (me.value != root) return plan.move(0, {plan.input(0)}, {plan.to(root, Form::kContribution)});
  std::vector<plan::Location> sources;
  for (int rank = 0; rank < n; ++rank)
    sources.push_back(rank == root ? plan.input(0) : plan.from(rank, Form::kContribution));
  const plan::Location output = plan.output(0);
  plan.move(0, sources, std::span(&output, 1));
}

void build_gather(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, {plan.input(0)}, {plan.to(root, Form::kResult)});
  plan.move(mine, {plan.input(0)}, {plan.output(mine)});
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.from(peer, Form::kResult)}, {plan.output(chunk_of(peer))});
  }
}

void build_scatter(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const auto mine = chunk_of(me.value);
  if (me.value != root) return plan.move(mine, {plan.from(root, Form::kResult)}, {plan.output(0)});
  for (int hop = 1; hop < n; ++hop) {
    const int peer = wrap(root + hop, n);
    plan.move(chunk_of(peer), {plan.input(chunk_of(peer))}, {plan.to(peer, Form::kResult)});
  }
  plan.move(mine, {plan.input(mine)}, {plan.output(0)});
}

void build_all_to_all(plan::Builder& plan, Rank me) {
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

constinit const Algorithm direct_reduce_scatter{
    .name = "direct",
    .collective = Collective::kReduceScatter,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_reduce_scatter,
    .claims = {.rounds = "1",
               .bytes = "(n-1)/n M",
               .peers = "n-1",
               .scratch = "0",
               .even = true,
               .good_for = "all ranks reach each other"}};

constinit const Algorithm direct_all_gather{
    .name = "direct",
    .collective = Collective::kAllGather,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_gather,
    .claims = {.rounds = "1",
               .bytes = "(n-1)/n M",
               .peers = "n-1",
               .scratch = "0",
               .even = true,
               .good_for = "all ranks reach each other; one multicast slot per rank"}};

constinit const Algorithm direct_broadcast{.name = "direct",
                                           .collective = Collective::kBroadcast,
                                           .applies = always,
                                           .contract = deterministic,
                                           .pieces = one_piece,
                                           .build = build_broadcast,
                                           .claims = {.rounds = "1",
                                                      .bytes = "(n-1) M",
                                                      .peers = "n-1",
                                                      .scratch = "0",
                                                      .good_for = "smallest messages; multicast"}};

constinit const Algorithm direct_reduce{.name = "direct",
                                        .collective = Collective::kReduce,
                                        .applies = always,
                                        .contract = deterministic,
                                        .pieces = one_piece,
                                        .build = build_reduce,
                                        .claims = {.rounds = "1",
                                                   .bytes = "M",
                                                   .peers = "n-1",
                                                   .scratch = "0",
                                                   .good_for = "smallest messages"}};

constinit const Algorithm direct_gather{.name = "direct",
                                        .collective = Collective::kGather,
                                        .applies = always,
                                        .contract = deterministic,
                                        .pieces = one_piece,
                                        .build = build_gather,
                                        .claims = {.rounds = "1",
                                                   .bytes = "M/n",
                                                   .peers = "n-1",
                                                   .scratch = "0",
                                                   .good_for = "all ranks reach the root"}};

constinit const Algorithm direct_scatter{.name = "direct",
                                         .collective = Collective::kScatter,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = one_piece,
                                         .build = build_scatter,
                                         .claims = {.rounds = "1",
                                                    .bytes = "(n-1)/n M",
                                                    .peers = "n-1",
                                                    .scratch = "0",
                                                    .good_for = "the root reaches everyone"}};

constinit const Algorithm direct_all_to_all{
    .name = "direct",
    .collective = Collective::kAllToAll,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_to_all,
    .claims = {.rounds = "1",
               .bytes = "(n-1)/n M",
               .peers = "n-1",
               .scratch = "0",
               .even = true,
               .good_for = "all ranks reach each other; in place by way of slots"}};

}  // namespace tutti
