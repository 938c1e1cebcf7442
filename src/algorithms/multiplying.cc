// Recursive multiplying: recursive doubling (halving_doubling.cc) with more than one partner per
// round. For small messages: half the rounds of doubling for 3/2 of its messages.
//
// All-reduce: groups of four neighbours exchange their inputs, each with the three others. Then
// groups of four such groups do, rank by rank at the same place, and so on. A step adds up the sums
// of its groups in the order of the ranks. They are aligned blocks of 4^level ranks, so four of
// them are two levels of the canonical tree. A group that is cut off at n has fewer ranks than the
// others: each of them sends its sum to several of the others.
#include <algorithm>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "M. Ruefenacht, M. Bull, S. Booth: Generalisation of recursive doubling for AllReduce: Now "
    "with simulation. Parallel Computing 69 (2017)";

// Any other radix does; the order is canonical only if it is a power of two.
constexpr int kRadix = 4;

// The sub-blocks of `size` ranks of the block of kRadix times that many that `rank` is in.
std::vector<Block> blocks_around(int rank, int size, int n) {
  const int first = rank - rank % (kRadix * size);
  std::vector<Block> blocks;
  for (int at = first; at < std::min(n, first + kRadix * size); at += size)
    blocks.push_back({at, std::min(size, n - at)});
  return blocks;
}

void build_all_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  plan::Location sum = plan.input(0);
  std::vector<plan::Location> sources{sum};  // The terms of my block's sum.
  for (int size = 1; size < n; size *= kRadix) {
    const std::vector<Block> blocks = blocks_around(me.value, size, n);
    if (blocks.size() == 1) continue;
    const int place = me.value % size;
    const Block mine = blocks[static_cast<std::size_t>((me.value - blocks[0].first) / size)];
    std::vector<plan::Location> targets, next;
    if (mine.size > 1) {
      sum = plan.scratch(0, Form::kPartial);
      targets.push_back(sum);
    }
    for (const Block& other : blocks) {
      if (other.first == mine.first) {
        next.push_back(sum);
        continue;
      }
      for (int to = place; to < other.size; to += mine.size)
        targets.push_back(plan.to(other.first + to, form_of(mine.size)));
      next.push_back(plan.from(other.first + place % other.size, form_of(other.size)));
    }
    plan.move(0, sources, targets);
    sources = std::move(next);
  }
  plan.move(0, sources, plan.output(0));
}

}  // namespace

constinit const Algorithm multiplying_all_reduce(
    "multiplying", Collective::kAllReduce, build_all_reduce,
    {.rounds = "ceil(k/2)",
     .bytes = "n a power of two: (k + floor(k/2)) M; other n: <= (n-1) M",
     .peers = "n a power of two: k + floor(k/2); other n: <= n-1",
     .scratch = "1"},
    {.sends_more = true,
     .good_for = "small messages, many ranks: half the rounds of `doubling`",
     .source = kSource});

}  // namespace tutti
