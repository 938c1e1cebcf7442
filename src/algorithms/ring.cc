// Ring: data travels from each rank to the next, so a rank has two neighbours only.
//
// With one slot per channel a ring of steps that take a slot and fill the next one would stand
// still: every slot is full, and every step waits for the next rank's step. So in the two parts
// rank 0 takes its slot first and sends then.
//
// Reduce-scatter and all-gather: every block goes around the ring once: the bandwidth optimum. Sums
// are made on the way to a block's owner. Their order differs from block to block, so relaxed if
// n > 2. All-reduce: the one after the other.
//
// Broadcast: the message goes from rank to rank, beginning at the root, piece after piece, so that
// all links are busy once the first piece has arrived at the end: the bandwidth optimum for long
// messages.
//
// Reduce: sums go in the same way, from the rank behind the root all the way round to the root. The
// order of addition is the ring's, so relaxed, but for two ranks, and for three with root 2.
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
  if (n == 1) return plan.move(mine, plan.input(mine), result);
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  // A chunk starts behind its owner, so that it ends there.
  const auto first = chunk_of(previous);
  plan.move(first, plan.input(first), plan.to(next, Form::kContribution));
  for (int ranks = 1; ranks < n; ++ranks) {  // In the sum that comes.
    const auto chunk = chunk_of(wrap(me.value - 1 - ranks, n));
    std::array sources{plan.from(previous, form_of(ranks)), plan.input(chunk)};
    if (me.value == 0) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
    const bool is_last = ranks == n - 1;
    const plan::Location sum = plan.scratch(0, Form::kPartial);
    const plan::Location onward = plan.to(next, Form::kPartial);
    plan.move(chunk, sources, is_last ? result : me.value == 0 ? sum : onward);
    if (me.value == 0 && !is_last) plan.move(chunk, sum, onward);
  }
}

void gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  if (n == 1) return share(plan, chunk_of(me.value), own);
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  const std::vector<int> none, onward{next};
  share(plan, chunk_of(me.value), own, onward);
  for (int hop = 1; hop < n; ++hop) {
    const auto chunk = chunk_of(wrap(me.value - hop, n));
    const std::vector<int>& to = hop == n - 1 ? none : onward;
    pass_on(plan, chunk, previous, me.value == 0 ? none : to);
    if (me.value == 0) share(plan, chunk, plan.output(chunk), to);
  }
}

void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const int next = wrap(me.value + 1, n), from = me.value == root ? -1 : wrap(me.value - 1, n);
  const std::vector<int> to = next == root ? std::vector<int>{} : std::vector{next};
  for (std::uint32_t piece = 0; piece < plan.pieces(); ++piece) pass_on(plan, piece, from, to);
}

void build_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  const int next = wrap(me.value + 1, n), previous = wrap(me.value - 1, n);
  const int behind = wrap(me.value - root - 1, n);  // Ranks in the sum that comes.
  for (std::uint32_t piece = 0; piece < plan.pieces(); ++piece) {
    const plan::Location target =
        me.value == root ? plan.output(piece) : plan.to(next, form_of(behind + 1));
    if (behind == 0) {
      plan.move(piece, plan.input(piece), target);
      continue;
    }
    std::array sources{plan.from(previous, form_of(behind)), plan.input(piece)};
    if (me.value == 0) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
    plan.move(piece, sources, target);
  }
}

}  // namespace

constinit const Algorithm ring_all_reduce(
    "ring", Collective::kAllReduce, all_reduce_of<reduce_part, gather_part>,
    {.rounds = "2(n-1)", .bytes = "2(n-1)/n M", .peers = "2", .scratch = "1"},
    {.contract = deterministic_for_two,
     .pieces = piece_per_rank,
     .even = true,
     .good_for = "long messages where only neighbours are near",
     .source = kSource});

constinit const Algorithm ring_reduce_scatter(
    "ring", Collective::kReduceScatter, reduce_scatter_of<reduce_part>,
    {.rounds = "n-1", .bytes = "(n-1)/n M", .peers = "2", .scratch = "1"},
    {.contract = deterministic_for_two,
     .even = true,
     .good_for = "only neighbours are near",
     .source = kSource});

constinit const Algorithm ring_all_gather(
    "ring", Collective::kAllGather, all_gather_of<gather_part>,
    {.rounds = "n-1", .bytes = "(n-1)/n M", .peers = "2"},
    {.even = true, .good_for = "only neighbours are near", .source = kSource});

constinit const Algorithm ring_broadcast(
    "ring", Collective::kBroadcast, build_broadcast, {.rounds = "n-1", .bytes = "M", .peers = "2"},
    {.pieces = piece_per_rank,
     .good_for = "long messages where only neighbours are near: pipelined by pieces"});

constinit const Algorithm ring_reduce(
    "ring", Collective::kReduce, build_reduce, {.rounds = "n-1", .bytes = "M", .peers = "2"},
    {.contract = deterministic_for_chains,
     .pieces = piece_per_rank,
     .good_for = "long messages where only neighbours are near: pipelined by pieces"});

}  // namespace tutti
