// One-shot all-reduce: each rank sends its whole input to all others and reduces all inputs itself.
// One round; n-1 messages of the whole size per rank. The least latency there is.
#include <vector>

#include "algorithms/algorithm.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  std::vector<plan::Location> peers, all;
  for (int rank = 0; rank < n; ++rank) {
    if (rank != me.value) peers.push_back(plan.to(rank, Form::kContribution));
    all.push_back(rank == me.value ? plan.input(0) : plan.from(rank, Form::kContribution));
  }
  const auto input = plan.input(0), output = plan.output(0);
  if (n > 1) plan.move(0, std::span(&input, 1), peers);
  plan.move(0, all, std::span(&output, 1));
}

}  // namespace

constinit const Algorithm one_shot_all_reduce{
    .name = "one_shot",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build,
    .claims = {.rounds = "1",
               .bytes = "(n-1) M",
               .peers = "n-1",
               .scratch = "0",
               .even = true,
               .sends_more = true,
               .good_for = "smallest messages; peers within reach of each other"}};

}  // namespace tutti
