// Ring broadcast: the message goes from rank to rank, beginning at the root, piece after piece, so
// that all links are busy once the first piece has arrived at the end. n-1 rounds for a piece; no
// rank sends more than the message once: the bandwidth optimum for long messages.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
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

}  // namespace

constinit const Algorithm ring_broadcast{.name = "ring",
                                         .collective = Collective::kBroadcast,
                                         .applies = always,
                                         .contract = deterministic,
                                         .pieces = piece_per_rank,
                                         .build = build};

}  // namespace tutti
