// Ring reduce: sums go from rank to rank, from the one behind the root all the way round to the
// root, piece after piece, so that all links are busy once the first piece has arrived. n-1 rounds
// for a piece; each rank but the root sends the message once: the bandwidth optimum for long
// messages. The order of addition is the ring's, so relaxed, but for two ranks, and for three
// with root 2.
#include <array>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
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

constinit const Algorithm ring_reduce{.name = "ring",
                                      .collective = Collective::kReduce,
                                      .applies = always,
                                      .contract = deterministic_for_chains,
                                      .pieces = piece_per_rank,
                                      .build = build};

}  // namespace tutti
