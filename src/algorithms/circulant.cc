// The circulant parts, for any number of ranks: ceil(log2 n) rounds, in each of which every rank
// sends to the rank one jump ahead and takes from the one as far behind. n-1 chunks sent and n-1
// taken by every rank: both optima at once, also where n is no power of two.
//
// The jumps are n halved and rounded up until it is 1: for 11 ranks 6, 3, 2, 1. With i counting
// from a rank's own chunk, rank r holds sums of the chunks r + i for all i below the last jump. It
// sends those from the new jump s on to rank r + s, for which they are the chunks from its own on.
// The all-gather is the same backwards.
//
// Ranks at a jump's distance form rings; along each, every other rank leads (exchange.h).
//
// J. L. Träff: Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms. arXiv 2410.14234
// (2024).

#include "algorithms/exchange.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

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

}  // namespace

void circulant_reduce_part(plan::Builder& plan, Rank me, Location result) {
  const int n = plan.shape().rank_count;
  const auto chunk = [&](int i) { return chunk_of(wrap(me.value + i, n)); };
  if (n == 1) return plan.move(chunk(0), {plan.input(chunk(0))}, {result});
  std::vector<Location> sums;
  for (int i = 0; i < n; ++i) sums.push_back(plan.input(chunk(i)));
  for (const auto& [jump, end] : rounds_of(n)) {
    const int from = wrap(me.value - jump, n);
    std::vector<Move> sends, takes;
    for (int i = jump; i < end; ++i) {
      const auto& sum = sums[static_cast<std::size_t>(i)];
      sends.push_back({chunk(i), {sum}, {plan.to(wrap(me.value + jump, n), sum.form)}});
    }
    for (int i = 0; i < end - jump; ++i) {
      auto& sum = sums[static_cast<std::size_t>(i)];
      // All ranks have added up as much, so what comes has the form of what goes.
      std::vector sources{
          sum,
          plan.from(from, sums[static_cast<std::size_t>(jump) + static_cast<std::size_t>(i)].form)};
      if (from < me.value) std::swap(sources[0], sources[1]);  // The canonical order if n is 2.
      sum = jump == 1 ? result : plan.scratch(chunk_of(i), Form::kPartial);
      takes.push_back({chunk(i), sources, {sum}});
    }
    exchange(plan, leads(me.value, jump, n), sends, takes);
  }
}

void circulant_gather_part(plan::Builder& plan, Rank me, Location own) {
  const int n = plan.shape().rank_count;
  const auto chunk = [&](int i) { return chunk_of(wrap(me.value + i, n)); };
  share(plan, me, own, {});
  const std::vector<Round> rounds = rounds_of(n);
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const auto [jump, end] = *round;
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

}  // namespace tutti
