// Recursive doubling all-reduce: neighbours at distance 1 exchange their sums, then at distance 2,
// 4,
// ..., the whole message each time. ceil(log2 n) rounds, the fewest with one message per rank and
// round; ceil(log2 n) messages per rank if n is a power of two. Canonical order. For small
// messages.
//
// For other n a block that is cut off is smaller than its buddy: its ranks then send their sum to
// several of the buddy's.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

// The slots that carry the sum of `block` to those of its buddy who get it from rank `me`.
std::vector<plan::Location> receivers(const plan::Builder& plan, Rank me, const Block& block,
                                      const Block& buddy) {
  std::vector<plan::Location> slots;
  for (int place = me.value - block.first; place < buddy.size; place += block.size)
    slots.push_back(plan.to(buddy.first + place, form_of(block.size)));
  return slots;
}

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  plan::Location sum = plan.input(0);
  std::vector<plan::Location> sources{sum};
  Block block{me.value, 1};  // Whose sum `sources` are.
  for (int level = 0; level < level_count(n); ++level) {
    const Block buddy = buddy_block(me.value, level, n);
    if (buddy.size == 0) continue;
    auto targets = receivers(plan, me, block, buddy);
    if (block.size > 1) {
      sum = plan.scratch(0, Form::kPartial);
      targets.push_back(sum);
    }
    if (!targets.empty()) plan.move(0, sources, targets);
    const int place = me.value - block.first;
    sources = {sum, plan.from(buddy.first + place % buddy.size, form_of(buddy.size))};
    if (buddy.first < block.first) std::swap(sources[0], sources[1]);
    block = {std::min(block.first, buddy.first), block.size + buddy.size};
  }
  const plan::Location output = plan.output(0);
  plan.move(0, sources, std::span(&output, 1));
}

}  // namespace

constinit const Algorithm doubling_all_reduce{.name = "doubling",
                                              .collective = Collective::kAllReduce,
                                              .applies = always,
                                              .contract = deterministic,
                                              .pieces = one_piece,
                                              .build = build};

}  // namespace tutti
