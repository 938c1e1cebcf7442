// Ring: data travels from each rank to the next, so a rank has two neighbours only.
//
// With one slot per channel a ring of steps that take a slot and fill the next one would stand
// still: every slot is full, and every step waits for the next rank's step. So in the two parts
// rank 0 takes its slot first and sends then.
//
// Reduce-scatter: every block goes around the ring once and is added up on its way to its owner.
// n-1 rounds, n-1 blocks per rank: the bandwidth optimum. The order of addition differs from block
// to block, so relaxed if n > 2.
//
// All-gather: every block goes around the ring once. n-1 rounds, n-1 blocks per rank: the bandwidth
// optimum.
//
// All-reduce: every chunk goes around the ring once and is added up, then once more and is handed
// out. 2(n-1) rounds, 2(n-1)/n of the message per rank: the bandwidth optimum. Relaxed if n > 2, as
// the reduce-scatter.
//
// Broadcast: the message goes from rank to rank, beginning at the root, piece after piece, so that
// all links are busy once the first piece has arrived at the end. n-1 rounds for a piece; no rank
// sends more than the message once: the bandwidth optimum for long messages.
//
// Reduce: sums go from rank to rank, from the one behind the root all the way round to the root,
// piece after piece, so that all links are busy once the first piece has arrived. n-1 rounds for a
// piece; each rank but the root sends the message once: the bandwidth optimum for long messages.
// The order of addition is the ring's, so relaxed, but for two ranks, and for three with root 2.
#include <array>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. "
    "JPDC 69 (2009)";

void reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
  const int n = plan.shape().rank_count;
  const auto mine = chunk_of(me.value);
  if (n == 1) return plan.move(mine, {plan.input(mine)}, {result});
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  // A chunk starts behind its owner, so that it ends there.
  const auto first = chunk_of(previous);
  plan.move(first, {plan.input(first)}, {plan.to(next, Form::kContribution)});
  for (int ranks = 1; ranks < n; ++ranks) {  // In the sum that comes.
    const auto chunk = chunk_of(wrap(me.value - 1 - ranks, n));
    const plan::Location theirs = plan.from(previous, form_of(ranks));
    std::array sources{theirs, plan.input(chunk)};
    if (me.value == 0) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
    const plan::Location sum = plan.scratch(0, Form::kPartial);
    const plan::Location onward = plan.to(next, Form::kPartial);
    if (ranks == n - 1) {
      plan.move(chunk, sources, std::span(&result, 1));
    } else if (me.value == 0) {
      plan.move(chunk, sources, std::span(&sum, 1));
      plan.move(chunk, {sum}, {onward});
    } else {
      plan.move(chunk, sources, std::span(&onward, 1));
    }
  }
}

void gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  if (n == 1) return share(plan, me, own, {});
  const plan::Location from = plan.from(wrap(me.value - 1, n), Form::kResult);
  const plan::Location onward = plan.to(wrap(me.value + 1, n), Form::kResult);
  share(plan, me, own, {onward});
  for (int hop = 1; hop < n; ++hop) {
    const auto chunk = chunk_of(wrap(me.value - hop, n));
    const plan::Location output = plan.output(chunk);
    if (hop == n - 1) {
      plan.move(chunk, {from}, {output});
    } else if (me.value == 0) {
      plan.move(chunk, {from}, {output});
      plan.move(chunk, {output}, {onward});
    } else {
      plan.move(chunk, {from}, {output, onward});
    }
  }
}

void build_reduce_scatter(plan::Builder& plan, Rank me) { reduce_part(plan, me, plan.output(0)); }

void build_all_gather(plan::Builder& plan, Rank me) { gather_part(plan, me, plan.input(0)); }

void build_all_reduce(plan::Builder& plan, Rank me) {
  reduce_and_gather(plan, me, reduce_part, gather_part);
}

void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  for (std::uint32_t piece = 0; piece < plan.pieces(); ++piece) {
    const plan::Location source =
        me.value == root ? plan.input(piece) : plan.from(previous, Form::kResult);
    std::vector<plan::Location> targets{plan.output(piece)};
    if (next != root) targets.push_back(plan.to(next, Form::kResult));
    plan.move(piece, std::span(&source, 1), targets);
  }
}

void build_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  const int behind = wrap(me.value - root - 1, n);  // Ranks in the sum that comes.
  for (std::uint32_t piece = 0; piece < plan.pieces(); ++piece) {
    const plan::Location target =
        me.value == root ? plan.output(piece) : plan.to(next, form_of(behind + 1));
    if (behind == 0) {
      plan.move(piece, {plan.input(piece)}, {target});
      continue;
    }
    std::array sources{plan.from(previous, form_of(behind)), plan.input(piece)};
    if (me.value == 0) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
    plan.move(piece, sources, std::span(&target, 1));
  }
}

}  // namespace

constinit const Algorithm ring_all_reduce{
    .name = "ring",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic_for_two,
    .pieces = piece_per_rank,
    .build = build_all_reduce,
    .claims = {.rounds = "2(n-1)",
               .bytes = "2(n-1)/n M",
               .peers = "2",
               .scratch = "1",
               .even = true,
               .good_for = "long messages where only neighbours are near",
               .source = kSource}};

constinit const Algorithm ring_reduce_scatter{.name = "ring",
                                              .collective = Collective::kReduceScatter,
                                              .applies = always,
                                              .contract = deterministic_for_two,
                                              .pieces = one_piece,
                                              .build = build_reduce_scatter,
                                              .claims = {.rounds = "n-1",
                                                         .bytes = "(n-1)/n M",
                                                         .peers = "2",
                                                         .scratch = "1",
                                                         .even = true,
                                                         .good_for = "only neighbours are near",
                                                         .source = kSource}};

constinit const Algorithm ring_all_gather{.name = "ring",
                                          .collective = Collective::kAllGather,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build_all_gather,
                                          .claims = {.rounds = "n-1",
                                                     .bytes = "(n-1)/n M",
                                                     .peers = "2",
                                                     .scratch = "0",
                                                     .even = true,
                                                     .good_for = "only neighbours are near",
                                                     .source = kSource}};

constinit const Algorithm ring_broadcast{
    .name = "ring",
    .collective = Collective::kBroadcast,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_rank,
    .build = build_broadcast,
    .claims = {.rounds = "n-1",
               .bytes = "M",
               .peers = "2",
               .scratch = "0",
               .good_for = "long messages where only neighbours are near: pipelined by pieces"}};

constinit const Algorithm ring_reduce{
    .name = "ring",
    .collective = Collective::kReduce,
    .applies = always,
    .contract = deterministic_for_chains,
    .pieces = piece_per_rank,
    .build = build_reduce,
    .claims = {.rounds = "n-1",
               .bytes = "M",
               .peers = "2",
               .scratch = "0",
               .good_for = "long messages where only neighbours are near: pipelined by pieces"}};

}  // namespace tutti
