// Binomial reduce: the message is added up along a binomial tree to the root. ceil(log2 n) rounds,
// the optimum; everyone but the root sends the message once. Canonical order, for every root.
#include "algorithms/algorithm.h"
#include "algorithms/nearest_tree.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  reduce_to(plan, me.value, plan.shape().root, 0, {plan.output(0)});
}

}  // namespace

constinit const Algorithm binomial_reduce{.name = "binomial",
                                          .collective = Collective::kReduce,
                                          .applies = always,
                                          .contract = deterministic,
                                          .pieces = one_piece,
                                          .build = build};

}  // namespace tutti
