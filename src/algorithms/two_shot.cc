// Two-shot: every rank owns a piece of the message; the data goes to the owners in the first round
// and on from them in the second. Two rounds, at the bandwidth optimum. All-reduce and reduce
// consist of the parts of direct.cc: the owner reduces in rank order, so all ranks share the
// arithmetic. In a broadcast the root owns nothing: it deals its pieces out, one to each other
// rank, and every rank passes its piece on to the rest.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

std::uint32_t piece_per_receiver(const plan::Shape& shape) {
  return chunk_of(std::max(1, shape.rank_count - 1));
}

void build_broadcast(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count, root = plan.shape().root;
  if (n == 1) return pass_on(plan, 0, -1);
  const std::vector<int> receivers = ranks_after(root, n);  // By piece.
  if (me.value == root) {
    for (int piece = 0; piece < n - 1; ++piece)
      pass_on(plan, chunk_of(piece), -1, {receivers[chunk_of(piece)]});
    return;
  }
  const int mine = wrap(me.value - root, n) - 1;
  std::vector<int> rest;
  for (const int piece : ranks_after(mine, n - 1)) rest.push_back(receivers[chunk_of(piece)]);
  pass_on(plan, chunk_of(mine), root, rest);
  for (const int piece : ranks_before(mine, n - 1))
    pass_on(plan, chunk_of(piece), receivers[chunk_of(piece)]);
}

}  // namespace

constinit const Algorithm two_shot_all_reduce(
    "two_shot", Collective::kAllReduce, all_reduce_of<direct_reduce_part, direct_gather_part>,
    {.rounds = "2", .bytes = "2(n-1)/n M", .peers = "n-1"},
    {.pieces = piece_per_rank,
     .even = true,
     .good_for = "large messages where all ranks reach each other; lowers to one step on "
                 "mapped memory"});

constinit const Algorithm two_shot_broadcast(
    "two_shot", Collective::kBroadcast, build_broadcast,
    {.rounds = "2", .bytes = "M", .peers = "n-1"},
    {.pieces = piece_per_receiver, .good_for = "large messages where all ranks reach each other"});

constinit const Algorithm two_shot_reduce(
    "two_shot", Collective::kReduce, reduce_of<direct_reduce_part>,
    {.rounds = "2", .bytes = "M", .peers = "n-1"},
    {.pieces = piece_per_rank,
     .sends_more = true,
     .good_for = "large messages: all ranks share the arithmetic"});

}  // namespace tutti
