// One-shot all-reduce: each rank sends its whole input to all others and reduces all inputs itself.
// One round; n-1 messages of the whole size per rank. The least latency there is.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

void build(plan::Builder& plan, Rank me) {
  std::vector<plan::Location> peers;
  for (int rank = 0; rank < plan.shape().rank_count; ++rank) {
    if (rank != me.value) peers.push_back(plan.to(rank, Form::kContribution));
  }
  if (!peers.empty()) plan.move(0, plan.input(0), peers);
  plan.move(0, contributions(plan, me, 0), plan.output(0));
}

}  // namespace

constinit const Algorithm one_shot_all_reduce(
    "one_shot", Collective::kAllReduce, build, {.rounds = "1", .bytes = "(n-1) M", .peers = "n-1"},
    {.even = true,
     .sends_more = true,
     .good_for = "smallest messages; peers within reach of each other"});

}  // namespace tutti
