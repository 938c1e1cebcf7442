// Two-shot broadcast: the root deals its pieces out, one to each other rank, and everyone passes
// its piece on to the rest. Two rounds; the root sends the message once, the others (n-2)/(n-1) of
// it: the bandwidth optimum.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

std::uint32_t piece_per_receiver(const plan::Shape& shape) {
  return chunk_of(std::max(1, shape.rank_count - 1));
}

void build(plan::Builder& plan, Rank me) {
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

constinit const Algorithm two_shot_broadcast{.name = "two_shot",
                                             .collective = Collective::kBroadcast,
                                             .applies = always,
                                             .contract = deterministic,
                                             .pieces = piece_per_receiver,
                                             .build = build};

}  // namespace tutti
