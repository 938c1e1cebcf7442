// PAT, parallel aggregated trees, in canonical order: chunk c is added up along the nearest tree of
// rank c (nearest_tree.h) and handed out along the same tree, as in halving_doubling.cc. But all
// chunks that cross the same level of their trees go in one round, so that there are ceil(log2 n)
// rounds: the farthest first when handing out, with one chunk, and the nearest first when adding
// up, with n/2.
//
// Aggregation is bounded, and with it the scratch that sums on their way need: an exchange has
// kMostChunks chunks at most. If a level has more, it is cut into several exchanges, and the chunks
// of one go all the way down (or up) their trees before those of the next. So for up to
// 2 kMostChunks ranks there is one exchange per level, and for many more about n / kMostChunks.
//
// In a round at level j the ranks of a block of 2^j exchange with the block's buddy, and one of two
// partners has to lead (exchange.h). If the buddies are full blocks, partners differ in bit j only,
// and it is parity that decides, changing from level to level: the rank that takes first at one
// level sends first at the next. So a part is a chain of ceil(log2 n) + 1 messages if there is one
// exchange per level, and not of twice as many. A block that is cut off is led by its buddy.
//
// In Jeaugey's PAT (kSource), chunk c's tree is that of rank 0, shifted by c; the trees here are
// the canonical ones.
#include <bit>
#include <map>

#include "algorithms/algorithm.h"
#include "algorithms/exchange.h"
#include "algorithms/parts.h"
#include "algorithms/trees/nearest_tree.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "S. Jeaugey: PAT: a new algorithm for all-gather and reduce-scatter operations at scale. "
    "arXiv 2506.20252 (2025)";

using plan::Location;

constexpr std::size_t kMostChunks = 8;

// Chunks by what their number has in common with mine: those with (me ^ chunk) >> bits in the list.
using Prefixes = std::vector<int>;

class Trees {
 public:
  Trees(plan::Builder& plan, Rank me) : plan_(plan), me_(me.value), n_(plan.shape().rank_count) {}

  /// Adds the rounds of levels `level` down to 0, for chunks that agree with me above `level`.
  void gather(int level, const Prefixes& prefixes, Location own) {
    if (level < 0) return;
    std::vector<Move> sends, takes;
    for_each_tree(level, prefixes, [&](int root, const NearestTree& tree) {
      const Location output = plan_.output(chunk_of(root));
      if (const auto* child = child_at(tree, level)) {
        sends.push_back(
            {chunk_of(root), {root == me_ ? own : output}, {plan_.to(child->rank, Form::kResult)}});
      } else if (parent_at(tree, level)) {
        takes.push_back({chunk_of(root), {plan_.from(tree.parent, Form::kResult)}, {output}});
      }
    });
    exchange(plan_, leads(level), sends, takes);
    const auto [near, far] = halves(prefixes);
    if (2 * prefixes.size() <= kMostChunks) return gather(level - 1, joined(near, far), own);
    gather(level - 1, near, own);
    gather(level - 1, far, own);
  }

  /// Adds the rounds of levels 0 up to `level`, for the same chunks.
  void reduce(int level, const Prefixes& prefixes, Location result) {
    if (level < 0) return;
    const auto [near, far] = halves(prefixes);
    if (2 * prefixes.size() <= kMostChunks) {
      reduce(level - 1, joined(near, far), result);
    } else {
      reduce(level - 1, far, result);
      reduce(level - 1, near, result);
    }
    std::vector<Move> sends, takes;
    std::vector<int> sent;
    for_each_tree(level, prefixes, [&](int root, const NearestTree& tree) {
      const Location sum = sum_of(root);
      if (parent_at(tree, level)) {
        sends.push_back({chunk_of(root), {sum}, {plan_.to(tree.parent, sum.form)}});
        sent.push_back(root);
      } else if (const auto* child = child_at(tree, level)) {
        std::vector sources{sum, plan_.from(child->rank, form_of(child->ranks))};
        if (child->rank < me_) std::swap(sources[0], sources[1]);
        const bool is_last = root == me_ && child->rank == tree.children.back().rank;
        takes.push_back({chunk_of(root), sources, {is_last ? result : new_sum(root)}});
      }
    });
    exchange(plan_, leads(level), sends, takes);
    for (const int root : sent) forget(root);
  }

 private:
  static int level_of(int rank, int other) {
    return static_cast<int>(std::bit_width(chunk_of(rank ^ other))) - 1;
  }
  bool parent_at(const NearestTree& tree, int level) const {
    return tree.parent >= 0 && level_of(me_, tree.parent) == level;
  }
  const NearestTree::Child* child_at(const NearestTree& tree, int level) const {
    for (const auto& child : tree.children) {
      if (level_of(me_, child.rank) == level) return &child;
    }
    return nullptr;
  }

  // The chunks of a round in ascending order, which sender and taker have in common.
  template <class Visit>
  void for_each_tree(int level, const Prefixes& prefixes, Visit visit) const {
    const int mine = me_ >> (level + 1);
    std::vector<int> firsts;
    for (const int prefix : prefixes) firsts.push_back((mine ^ prefix) << (level + 1));
    std::sort(firsts.begin(), firsts.end());
    for (const int first : firsts) {
      for (int root = first; root < std::min(first + (2 << level), n_); ++root)
        visit(root, nearest_tree(me_, root, n_));
    }
  }

  static std::pair<Prefixes, Prefixes> halves(const Prefixes& prefixes) {
    Prefixes near, far;
    for (const int prefix : prefixes) {
      near.push_back(2 * prefix);
      far.push_back(2 * prefix + 1);
    }
    return {near, far};
  }
  static Prefixes joined(Prefixes some, const Prefixes& others) {
    some.insert(some.end(), others.begin(), others.end());
    return some;
  }

  bool leads(int level) const {
    const int end = ((me_ >> (level + 1)) + 1) << (level + 1);
    const bool is_full = end <= n_;
    const int bits = is_full ? std::popcount(chunk_of(me_)) + level : me_ >> level;
    return bits % 2 == 0;
  }

  // Where the sum of what has come for a chunk is. Scratch is used again once a sum was sent.
  Location sum_of(int root) const {
    const auto found = sums_.find(root);
    return found == sums_.end() ? plan_.input(chunk_of(root))
                                : plan_.scratch(found->second, Form::kPartial);
  }
  Location new_sum(int root) {
    if (sums_.count(root) == 0) {
      if (free_.empty()) free_.push_back(static_cast<std::uint32_t>(sums_.size()));
      sums_[root] = free_.back();
      free_.pop_back();
    }
    return sum_of(root);
  }
  void forget(int root) {
    const auto found = sums_.find(root);
    if (found == sums_.end()) return;
    free_.push_back(found->second);
    sums_.erase(found);
  }

  plan::Builder& plan_;
  int me_, n_;
  std::map<int, std::uint32_t> sums_;  // Scratch chunks by chunk.
  std::vector<std::uint32_t> free_;
};

void reduce_part(plan::Builder& plan, Rank me, Location result) {
  const int n = plan.shape().rank_count;
  if (n == 1) return plan.move(0, plan.input(0), result);
  Trees(plan, me).reduce(level_count(n) - 1, {0}, result);
}

void gather_part(plan::Builder& plan, Rank me, Location own) {
  share(plan, chunk_of(me.value), own);
  Trees(plan, me).gather(level_count(plan.shape().rank_count) - 1, {0}, own);
}

}  // namespace

constinit const Algorithm pat_all_reduce(
    "pat", Collective::kAllReduce, all_reduce_of<reduce_part, gather_part>,
    {.rounds = "2k",
     .bytes = "~ 2(n-1)/n M",
     .peers = "n a power of two: k; other n: <= n-1",
     .scratch = "<= min(ceil(n/2), 8k)",
     .waits = "n a power of two up to 16: 2k+2"},
    {.pieces = piece_per_rank,
     .good_for = "middle sizes, many ranks: the fewest waits at optimal bytes",
     .source = kSource});

constinit const Algorithm pat_reduce_scatter(
    "pat", Collective::kReduceScatter, reduce_scatter_of<reduce_part>,
    {.rounds = "k",
     .bytes = "(n-1)/n M",
     .peers = "n a power of two: k; other n: <= n-1",
     .scratch = "<= min(ceil(n/2), 8k)",
     .waits = "n a power of two up to 16: k+1"},
    {.even = true, .good_for = "small blocks, many ranks", .source = kSource});

constinit const Algorithm pat_all_gather("pat", Collective::kAllGather, all_gather_of<gather_part>,
                                         {.rounds = "k",
                                          .bytes = "~ (n-1)/n M",
                                          .peers = "n a power of two: k; other n: <= n-1",
                                          .waits = "n a power of two up to 16: k+1"},
                                         {.good_for = "small blocks, many ranks",
                                          .source = kSource});

}  // namespace tutti
