// Weighted all-reduce: two shots (two_shot.cc), but rank r owns as many pieces as its weight says.
// 2 rounds, canonical order. For links that are not alike: where one host of 8 has half the
// bandwidth, equal shares keep all waiting for what it has to take and to hand out; if it owns
// nothing, all is done in 4/7 of the time.
//
// Rank r sends its contributions to the others' pieces and the results of its own to all: with
// the share x_r of the message that is 1 - x_r + (n-1) x_r = 1 + (n-2) x_r, and it takes as much.
// For ranks that send and take at rates b_r (full duplex, through a network that is not in the way)
// the best rate of the whole is X = min(min b, sum b / 2(n-1)), and any shares with 1 + (n-2) x_r
// <= b_r / X reach it.
//
// A slow rank first mainly sends contributions, and later mainly takes results. So there are four
// lanes, each with its part of the message: some use the link's one direction, some the other. By
// the estimator, with one of 8 (16) ranks at half bandwidth, two lanes reach 84 % (77 %) of X, four
// 99 %.
#include <numeric>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "M. Diskin et al.: Distributed Deep Learning in Open Collaborations. NeurIPS 2021 (the idea of "
    "unequal shares, there found by a linear program; the closed form for a star is ours)";

constexpr int kLanes = 4;
constexpr int kMostPieces = 1 << 16;

bool has_weights(const plan::Shape& shape) {
  const auto& weights = shape.weights;
  if (weights.size() != static_cast<std::size_t>(shape.rank_count)) return false;
  int sum = 0;
  for (const int weight : weights) {
    if (weight < 0 || weight > kMostPieces) return false;
    sum = std::min(sum + weight, kMostPieces);
  }
  return sum > 0 && sum < kMostPieces;
}

// Which pieces a rank owns, in each lane.
class Shares {
 public:
  explicit Shares(const plan::Shape& shape) : pieces_(shape.weights) {
    int divisor = 0;
    for (const int weight : pieces_) divisor = std::gcd(divisor, weight);
    for (int& pieces : pieces_) {
      pieces /= divisor;
      first_.push_back(count_);
      count_ += pieces;
      turns_ = std::max(turns_, pieces);
    }
  }
  int turns() const { return turns_; }
  int count() const { return count_; }
  bool has(int rank, int turn) const { return turn < pieces_[static_cast<std::size_t>(rank)]; }
  std::uint32_t piece(int lane, int rank, int turn) const {
    return chunk_of(lane * count_ + first_[static_cast<std::size_t>(rank)] + turn);
  }

 private:
  std::vector<int> pieces_, first_;  // By rank.
  int count_ = 0, turns_ = 0;
};

std::uint32_t piece_per_share(const plan::Shape& shape) {
  return chunk_of(kLanes * Shares(shape).count());
}

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const Shares shares(plan.shape());
  for (int step = 0; step < kLanes * shares.turns(); ++step) {
    const int lane = step / shares.turns(), turn = step % shares.turns();
    plan.lane(chunk_of(lane));
    for (const int owner : ranks_after(me.value, n)) {
      if (!shares.has(owner, turn)) continue;
      const auto piece = shares.piece(lane, owner, turn);
      plan.move(piece, plan.input(piece), plan.to(owner, Form::kContribution));
    }
    if (shares.has(me.value, turn)) {
      const auto piece = shares.piece(lane, me.value, turn);
      plan.move(piece, contributions(plan, me, piece), plan.output(piece));
      share(plan, piece, plan.output(piece), ranks_after(me.value, n));
    }
    for (const int owner : ranks_before(me.value, n)) {
      if (shares.has(owner, turn)) pass_on(plan, shares.piece(lane, owner, turn), owner);
    }
  }
}

}  // namespace

constinit const Algorithm weighted_all_reduce(
    "weighted", Collective::kAllReduce, build,
    {.rounds = "2", .bytes = "(1 + (n-2) x) M", .peers = "n-1"},
    {.applies = has_weights,
     .pieces = piece_per_share,
     .good_for = "links that are not alike: a slow rank owns less, or nothing",
     .source = kSource});

}  // namespace tutti
