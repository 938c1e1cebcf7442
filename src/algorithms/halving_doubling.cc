// Recursive halving and recursive doubling, for any number of ranks: ranks exchange at distances 1,
// 2, 4, ... in ceil(log2 n) rounds one way. All reductions are in canonical order.
//
// The parts: chunk c is added up along the nearest tree of rank c (nearest_tree.h), and handed out
// along the same tree. If n is a power of two these are the exchanges with rank ^ 1, rank ^ 2,
// rank ^ 4, ... that gave the names.
//
// A rank handles chunk c in phase me ^ c. Up the tree the phase falls, so the reduce part goes
// through the phases downwards and the gather part upwards: each chunk is passed on as soon as it
// is here, in one step, and one scratch chunk is enough. All ranks send and receive in every phase.
//
// One slot per channel: two ranks exchange chunks at one level of the tree only, where the chunk's
// bits down from that level are given; so two chunks on a channel differ in higher bits. The
// receiver's phase for the first has these in common with the sender's: it comes before the
// sender's phase for the second.
//
// Both parts take ceil(log2 n) rounds, the optimum. The bytes are optimal too; but for other n than
// powers of two those that a gather part sends are so on the average only, and ranks of a block
// that is cut off have more neighbours. In a reduce all ranks share the arithmetic. Unlike in
// Rabenseifner's all-reduce, distance doubles here while the data halves, because that order is the
// canonical one.
//
// Doubling all-reduce, for small messages: neighbours at distance 1 exchange their sums, then at
// distance 2, 4, ..., the whole message each time: the fewest rounds with one message per rank and
// round. For other n than powers of two a block that is cut off is smaller than its buddy: its
// ranks then send their sum to several of the buddy's.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/trees/nearest_tree.h"

namespace tutti {
namespace {

constexpr std::string_view kRabenseifner =
    "R. Rabenseifner: Optimization of Collective Reduction Operations. ICCS 2004";

constexpr std::string_view kThakur =
    "R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective Communication Operations in "
    "MPICH. IJHPCA 19 (2005)";

void reduce_part(plan::Builder& plan, Rank me, plan::Location result) {
  const int n = plan.shape().rank_count;
  for (int phase = (1 << level_count(n)) - 1; phase >= 0; --phase) {
    const int root = me.value ^ phase;
    if (root < n) reduce_to(plan, me.value, root, chunk_of(root), result);
  }
}

void gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  for (int phase = 0; phase < 1 << level_count(n); ++phase) {
    const int root = me.value ^ phase;
    if (root >= n) continue;
    const NearestTree tree = nearest_tree(me.value, root, n);
    if (phase == 0) {
      share(plan, chunk_of(me.value), own, tree.farthest_first());
    } else {
      pass_on(plan, chunk_of(root), tree.parent, tree.farthest_first());
    }
  }
}

void build_doubling_all_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  plan::Location sum = plan.input(0);
  std::vector<plan::Location> sources{sum};
  Block block{me.value, 1};  // The ranks whose inputs `sources` add up to.
  for (int level = 0; level < level_count(n); ++level) {
    const Block buddy = buddy_block(me.value, level, n);
    if (buddy.size == 0) continue;
    const int place = me.value - block.first;
    std::vector<plan::Location> targets;
    for (int to = place; to < buddy.size; to += block.size)
      targets.push_back(plan.to(buddy.first + to, form_of(block.size)));
    if (block.size > 1) {
      sum = plan.scratch(0, Form::kPartial);
      targets.push_back(sum);
    }
    plan.move(0, sources, targets);
    sources = {sum, plan.from(buddy.first + place % buddy.size, form_of(buddy.size))};
    if (buddy.first < block.first) std::swap(sources[0], sources[1]);
    block = {std::min(block.first, buddy.first), block.size + buddy.size};
  }
  plan.move(0, sources, plan.output(0));
}

}  // namespace

constinit const Algorithm doubling_all_reduce(
    "doubling", Collective::kAllReduce, build_doubling_all_reduce,
    {.rounds = "k",
     .bytes = "n a power of two: k M; other n: <= (n-1) M",
     .peers = "n a power of two: k; other n: <= n-1",
     .scratch = "1"},
    {.sends_more = true, .good_for = "small messages, many ranks", .source = kThakur});

constinit const Algorithm halving_doubling_all_reduce(
    "halving_doubling", Collective::kAllReduce, all_reduce_of<reduce_part, gather_part>,
    {.rounds = "2k",
     .bytes = "~ 2(n-1)/n M",
     .peers = "n a power of two: k; other n: <= n-1",
     .scratch = "1"},
    {.pieces = piece_per_rank,
     .good_for = "large messages over few channels",
     .source = kRabenseifner});

constinit const Algorithm halving_reduce_scatter(
    "halving", Collective::kReduceScatter, reduce_scatter_of<reduce_part>,
    {.rounds = "k",
     .bytes = "(n-1)/n M",
     .peers = "n a power of two: k; other n: <= n-1",
     .scratch = "1"},
    {.even = true, .good_for = "few channels", .source = kRabenseifner});

constinit const Algorithm doubling_all_gather(
    "doubling", Collective::kAllGather, all_gather_of<gather_part>,
    {.rounds = "k", .bytes = "~ (n-1)/n M", .peers = "n a power of two: k; other n: <= n-1"},
    {.good_for = "few channels", .source = kThakur});

constinit const Algorithm halving_reduce(
    "halving", Collective::kReduce, reduce_of<reduce_part>,
    {.rounds = "k+1", .bytes = "M", .peers = "n-1", .scratch = "1"},
    {.pieces = piece_per_rank,
     .sends_more = true,
     .good_for = "large messages over few channels but the root's; all ranks share the arithmetic",
     .source = kRabenseifner});

}  // namespace tutti
