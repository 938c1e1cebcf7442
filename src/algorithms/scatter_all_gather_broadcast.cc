// Scatter and all-gather broadcast: the root scatters n pieces along a binomial tree, and recursive
// doubling hands them around, but not to ranks that the piece passed in the scatter. So each piece
// arrives once at each rank. 2 ceil(log2 n) rounds, about log2 n neighbours per rank; no rank sends
// more than about twice the message.
//
// Unlike in InterCom (kSource), the all-gather has no receives that bring nothing new.
#include <bit>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/parts.h"
#include "algorithms/trees/nearest_tree.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "M. Barnett et al.: Interprocessor collective communication library (InterCom). SHPCC 1994";

// Numbers count from the root. In the scatter, number v gets the pieces of the ranks below it in
// the tree of 0: from v to v plus its lowest bit.
bool saw(int number, int piece) {
  return number == 0 || (piece >= number && piece - number < (number & -number));
}

class Broadcast {
 public:
  Broadcast(plan::Builder& plan, Rank me)
      : plan_(plan), n_(plan.shape().rank_count), me_(wrap(me.value - plan.shape().root, n_)) {}

  // The farthest piece first: it has the longest way. My own comes last.
  void scatter() {
    const int end = me_ == 0 ? n_ : std::min(n_, me_ + (me_ & -me_));
    for (int piece = end - 1; piece > me_; --piece) {
      const auto child = static_cast<int>(std::bit_floor(chunk_of(piece - me_)));
      receive(piece, me_ & (me_ - 1), {rank_of(me_ + child)});
    }
    receive(me_, me_ & (me_ - 1), receivers(me_));
  }

  // In the order of the phases of the gather part in halving_doubling.cc.
  void gather() {
    for (int phase = 1; phase < 1 << level_count(n_); ++phase) {
      const int piece = me_ ^ phase;
      if (piece >= n_) continue;
      if (!saw(me_, piece)) {
        receive(piece, nearest_tree(me_, piece, n_).parent, receivers(piece));
      } else {
        share(plan_, chunk_of(piece), plan_.output(chunk_of(piece)), receivers(piece));
      }
    }
  }

 private:
  int rank_of(int number) const { return wrap(number + plan_.shape().root, n_); }
  std::vector<int> receivers(int piece) const {
    std::vector<int> ranks;
    for (const auto& child : nearest_tree(me_, piece, n_).children) {
      if (!saw(child.rank, piece)) ranks.insert(ranks.begin(), rank_of(child.rank));
    }
    return ranks;
  }
  void receive(int piece, int from, const std::vector<int>& to) {
    pass_on(plan_, chunk_of(piece), me_ == 0 ? -1 : rank_of(from), to);
  }

  plan::Builder& plan_;
  int n_, me_;
};

void build(plan::Builder& plan, Rank me) {
  Broadcast broadcast(plan, me);
  broadcast.scatter();
  broadcast.gather();
}

}  // namespace

constinit const Algorithm scatter_all_gather_broadcast(
    "scatter_all_gather", Collective::kBroadcast, build,
    {.rounds = "<= 2k-1", .bytes = "~ 2(n-1)/n M", .peers = "n a power of two: k; other n: <= n-1"},
    {.pieces = piece_per_rank, .good_for = "large messages over few channels", .source = kSource});

}  // namespace tutti
