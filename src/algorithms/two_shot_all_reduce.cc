// Two-shot all-reduce: rank r owns chunk r. Everyone sends every owner its chunk; the owner reduces
// all of them in rank order and sends the result to everyone. Two rounds, 2(n-1)/n of the message
// per rank: the bandwidth optimum, in canonical order.
#include <vector>

#include "algorithms/algorithm.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const auto mine = static_cast<std::uint32_t>(me.value);
  std::vector<plan::Location> contributions, everywhere{plan.output(mine)};
  for (int hop = 1; hop < n;
       ++hop) {  // Start with the next rank, so that not all begin with rank 0.
    const int peer = (me.value + hop) % n;
    plan.move(static_cast<std::uint32_t>(peer), {plan.input(static_cast<std::uint32_t>(peer))},
              {plan.to(peer, Form::kContribution)});
    everywhere.push_back(plan.to(peer, Form::kResult));
  }
  for (int rank = 0; rank < n; ++rank) {
    contributions.push_back(rank == me.value ? plan.input(mine)
                                             : plan.from(rank, Form::kContribution));
  }
  plan.move(mine, contributions, everywhere);
  for (int hop = 1; hop < n; ++hop) {
    const int peer = (me.value + n - hop) % n;
    plan.move(static_cast<std::uint32_t>(peer), {plan.from(peer, Form::kResult)},
              {plan.output(static_cast<std::uint32_t>(peer))});
  }
}

}  // namespace

constinit const Algorithm two_shot_all_reduce{.name = "two_shot",
                                              .collective = Collective::kAllReduce,
                                              .applies = always,
                                              .contract = deterministic,
                                              .pieces = piece_per_rank,
                                              .build = build};

}  // namespace tutti
