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
// Halving reduce-scatter: ceil(log2 n) rounds, n-1 blocks per rank: both optimal.
//
// Halving reduce: the reduce-scatter, then each rank sends the root its result. ceil(log2 n) + 1
// rounds; each rank but the root sends the message once: the bandwidth optimum. All ranks share the
// arithmetic.
//
// Doubling all-gather: ceil(log2 n) rounds; n-1 blocks received per rank, and sent if n is a power
// of two: both optimal.
//
// Halving-doubling all-reduce: the reduce part leaves each rank the result of its chunk, the gather
// part hands it around. 2 ceil(log2 n) rounds; 2(n-1)/n of the message per rank, the bandwidth
// optimum, and log2 n neighbours if n is a power of two. For other n that much is the average, and
// ranks of a block that is cut off have more neighbours.
// Unlike in Rabenseifner's, distance doubles here while the data halves, because that order is the
// canonical one.
//
// Doubling all-reduce, for small messages: neighbours at distance 1 exchange their sums, then at
// distance 2, 4, ..., the whole message each time. ceil(log2 n) rounds, the fewest with one message
// per rank and round; ceil(log2 n) messages per rank if n is a power of two. For other n a block
// that is cut off is smaller than its buddy: its ranks then send their sum to several of the
// buddy's.
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/ranks.h"
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
    if (root < n) reduce_to(plan, me.value, root, chunk_of(root), {result});
  }
}

void gather_part(plan::Builder& plan, Rank me, plan::Location own) {
  const int n = plan.shape().rank_count;
  for (int phase = 0; phase < 1 << level_count(n); ++phase) {
    const int root = me.value ^ phase;
    if (root >= n) continue;
    const NearestTree tree = nearest_tree(me.value, root, n);
    std::vector<plan::Location> targets;
    for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child)
      targets.push_back(plan.to(child->rank, Form::kResult));  // The farthest has most to do.
    if (phase == 0) {
      share(plan, me, own, std::move(targets));
      continue;
    }
    const plan::Location source = plan.from(tree.parent, Form::kResult);
    targets.insert(targets.begin(), plan.output(chunk_of(root)));
    plan.move(chunk_of(root), std::span(&source, 1), targets);
  }
}

void build_reduce_scatter(plan::Builder& plan, Rank me) { reduce_part(plan, me, plan.output(0)); }

void build_reduce(plan::Builder& plan, Rank me) { reduce_and_collect(plan, me, reduce_part); }

void build_all_gather(plan::Builder& plan, Rank me) { gather_part(plan, me, plan.input(0)); }

void build_all_reduce(plan::Builder& plan, Rank me) {
  reduce_and_gather(plan, me, reduce_part, gather_part);
}

// The slots that carry the sum of `block` to those of its buddy that get it from rank `me`.
std::vector<plan::Location> receivers(const plan::Builder& plan, Rank me, const Block& block,
                                      const Block& buddy) {
  std::vector<plan::Location> slots;
  for (int place = me.value - block.first; place < buddy.size; place += block.size)
    slots.push_back(plan.to(buddy.first + place, form_of(block.size)));
  return slots;
}

void build_doubling_all_reduce(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  plan::Location sum = plan.input(0);
  std::vector<plan::Location> sources{sum};
  Block block{me.value, 1};  // The ranks whose inputs `sources` add up to.
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

constinit const Algorithm doubling_all_reduce{
    .name = "doubling",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_doubling_all_reduce,
    .claims = {.rounds = "k",
               .bytes = "n a power of two: k M; other n: <= (n-1) M",
               .peers = "n a power of two: k; other n: <= n-1",
               .scratch = "1",
               .sends_more = true,
               .good_for = "small messages, many ranks",
               .source = kThakur}};

constinit const Algorithm halving_doubling_all_reduce{
    .name = "halving_doubling",
    .collective = Collective::kAllReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_rank,
    .build = build_all_reduce,
    .claims = {.rounds = "2k",
               .bytes = "~ 2(n-1)/n M",
               .peers = "n a power of two: k; other n: <= n-1",
               .scratch = "1",
               .good_for = "large messages over few channels",
               .source = kRabenseifner}};

constinit const Algorithm halving_reduce_scatter{
    .name = "halving",
    .collective = Collective::kReduceScatter,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_reduce_scatter,
    .claims = {.rounds = "k",
               .bytes = "(n-1)/n M",
               .peers = "n a power of two: k; other n: <= n-1",
               .scratch = "1",
               .even = true,
               .good_for = "few channels",
               .source = kRabenseifner}};

constinit const Algorithm doubling_all_gather{
    .name = "doubling",
    .collective = Collective::kAllGather,
    .applies = always,
    .contract = deterministic,
    .pieces = one_piece,
    .build = build_all_gather,
    .claims = {.rounds = "k",
               .bytes = "~ (n-1)/n M",
               .peers = "n a power of two: k; other n: <= n-1",
               .scratch = "0",
               .good_for = "few channels",
               .source = kThakur}};

constinit const Algorithm halving_reduce{
    .name = "halving",
    .collective = Collective::kReduce,
    .applies = always,
    .contract = deterministic,
    .pieces = piece_per_rank,
    .build = build_reduce,
    .claims = {
        .rounds = "k+1",
        .bytes = "M",
        .peers = "n-1",
        .scratch = "1",
        .sends_more = true,
        .good_for =
            "large messages over few channels but the root's; all ranks share the arithmetic",
        .source = kRabenseifner}};

}  // namespace tutti
