// The ring parts: chunks travel from each rank to the next. n-1 rounds, n-1 messages per rank, each
// of one chunk.
//
// With one slot per channel a ring of steps that take a slot and fill the next one would stand
// still: every slot is full, and every step waits for the next rank's step. So rank 0 takes its
// slot first and sends then.
#include <array>
#include <vector>

#include "algorithms/parts.h"
#include "algorithms/ranks.h"

namespace tutti {

void ring_reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
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

void ring_gather_part(plan::Builder& plan, Rank me, plan::Location own) {
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

}  // namespace tutti
