// Circulant: each rank sends to the rank one jump ahead and takes from the rank one jump behind,
// for any number of ranks. ceil(log2 n) rounds one way; every rank sends n-1 chunks and takes n-1:
// both optima at once, also where n is no power of two.
//
// The jumps are n halved and rounded up until it is 1: for 11 ranks 6, 3, 2, 1. With i counting
// from a rank's own chunk, rank r holds sums of the chunks r + i for all i below the last jump. It
// sends those from the new jump s on to rank r + s, for which they are the chunks from its own on.
// The all-gather is the same backwards.
//
// Ranks at a jump's distance form rings; along each, every other rank leads (exchange.h).
//
// The order of addition differs from chunk to chunk, so sums are relaxed if n > 2.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/exchange.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "J. L. Traeff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms. "
    "arXiv 2410.14234 (2024)";

using plan::Location;

// A round: chunks [jump, end), counted from the sender's own, go to those at [0, end - jump).
struct Round {
  int jump = 0;
  int end = 0;
};

std::vector<Round> rounds_of(int n) {
  std::vector<Round> rounds;
  for (int end = n; end > 1; end = rounds.back().jump) rounds.push_back({(end + 1) / 2, end});
  return rounds;
}

void reduce_part(plan::Builder& plan, Rank me, Location result) {
  const int n = plan.shape().rank_count;
  const auto chunk = [&](int i) { return chunk_of(wrap(me.value + i, n)); };
  if (n == 1) return plan.move(chunk(0), plan.input(chunk(0)), result);
  std::vector<Location> sums;
  for (int i = 0; i < n; ++i) sums.push_back(plan.input(chunk(i)));
  for (const auto& [jump, end] : rounds_of(n)) {
    const int from = wrap(me.value - jump, n);
    std::vector<Move> sends, takes;
    for (int i = jump; i < end; ++i) {
      const auto& sum = sums[chunk_of(i)];
      sends.push_back({chunk(i), {sum}, {plan.to(wrap(me.value + jump, n), sum.form)}});
    }
    for (int i = 0; i < end - jump; ++i) {
      auto& sum = sums[chunk_of(i)];
      // All ranks have added up as much, so what comes has the form of what goes.
      std::vector sources{sum, plan.from(from, sums[chunk_of(jump + i)].form)};
      if (from < me.value) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
      sum = jump == 1 ? result : plan.scratch(chunk_of(i), Form::kPartial);
      takes.push_back({chunk(i), sources, {sum}});
    }
    exchange(plan, leads(me.value, jump, n), sends, takes);
  }
}

void gather_part(plan::Builder& plan, Rank me, Location own) {
  const int n = plan.shape().rank_count;
  const auto chunk = [&](int i) { return chunk_of(wrap(me.value + i, n)); };
  share(plan, chunk_of(me.value), own);
  std::vector<Round> rounds = rounds_of(n);
  std::ranges::reverse(rounds);
  for (const auto& [jump, end] : rounds) {
    const Location from = plan.from(wrap(me.value + jump, n), Form::kResult);
    const Location to = plan.to(wrap(me.value - jump, n), Form::kResult);
    std::vector<Move> sends, takes;
    for (int i = 0; i < end - jump; ++i) {
      sends.push_back({chunk(i), {i == 0 ? own : plan.output(chunk(i))}, {to}});
      takes.push_back({chunk(jump + i), {from}, {plan.output(chunk(jump + i))}});
    }
    exchange(plan, leads(me.value, jump, n), sends, takes);
  }
}

}  // namespace

constinit const Algorithm circulant_all_reduce("circulant", Collective::kAllReduce,
                                               all_reduce_of<reduce_part, gather_part>,
                                               {.rounds = "<= 2k",
                                                .bytes = "2(n-1)/n M",
                                                .peers = "<= 2k",
                                                .scratch = "floor(n/2)",
                                                .waits = "<= 4k-2"},
                                               {.contract = deterministic_for_two,
                                                .pieces = piece_per_rank,
                                                .even = true,
                                                .good_for = "middle sizes, n no power of two",
                                                .source = kSource});

constinit const Algorithm circulant_reduce_scatter("circulant", Collective::kReduceScatter,
                                                   reduce_scatter_of<reduce_part>,
                                                   {.rounds = "<= k",
                                                    .bytes = "(n-1)/n M",
                                                    .peers = "<= 2k",
                                                    .scratch = "floor(n/2)",
                                                    .waits = "<= 2k-1"},
                                                   {.contract = deterministic_for_two,
                                                    .even = true,
                                                    .good_for = "small blocks, n no power of two",
                                                    .source = kSource});

constinit const Algorithm circulant_all_gather(
    "circulant", Collective::kAllGather, all_gather_of<gather_part>,
    {.rounds = "<= k", .bytes = "(n-1)/n M", .peers = "<= 2k", .waits = "<= 2k-1"},
    {.even = true, .good_for = "small blocks, n no power of two", .source = kSource});

}  // namespace tutti
