// Direct broadcast: the root sends the message to everyone. One round; the root sends it n-1 times.
// The least latency there is, and one store for all where the channel can multicast.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (me.value != root) return plan.move(0, {plan.from(root, Form::kResult)}, {plan.output(0)});
  const plan::Location input = plan.input(0);
  std::vector<plan::Location> targets{plan.output(0)};
  for (int hop = 1; hop < n; ++hop) targets.push_back(plan.to(wrap(root + hop, n), Form::kResult));
  plan.move(0, std::span(&input, 1), targets);
}

}  // namespace

constinit const Algorithm direct_broadcast{.name = "direct",
                                           .collective = Collective::kBroadcast,
                                           .applies = always,
                                           .contract = deterministic,
                                           .pieces = one_piece,
                                           .build = build};

}  // namespace tutti
