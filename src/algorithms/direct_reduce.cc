// Direct reduce: everyone sends the root the message; the root reduces all of them in rank order.
// One round; the root receives n-1 messages. The least latency there is.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (me.value != root) return plan.move(0, {plan.input(0)}, {plan.to(root, Form::kContribution)});
  std::vector<plan::Location> sources;
  for (int rank = 0; rank < n; ++rank)
    sources.push_back(rank == root ? plan.input(0) : plan.from(rank, Form::kContribution));
  const plan::Location output = plan.output(0);
  plan.move(0, sources, std::span(&output, 1));
}

}  // namespace

constinit const Algorithm direct_reduce{.name = "direct",
                                        .collective = Collective::kReduce,
                                        .applies = always,
                                        .contract = deterministic,
                                        .pieces = one_piece,
                                        .build = build};

}  // namespace tutti
