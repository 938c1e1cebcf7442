// Bruck's all-to-all: in round j each rank sends the rank 2^j ahead all blocks that have bit j set
// in the distance that they have to go. ceil(log2 n) rounds and few neighbours; a block is sent
// once for each bit of its distance, so a rank sends up to n/2 blocks per round.
//
// A block of distance d on its way is always at d's lower bits behind its end: so a rank has one
// block of each distance, and takes one of the same distance for each that it sends. It leads or
// follows in a round (exchange.h), so what comes must not take the place of what goes: scratch
// chunks come from a store, and go back at the end of the round. In place: what a block from a peer
// would overwrite before it was sent is put into scratch first, one block per round or so.
#include <set>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/exchange.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

constexpr std::string_view kSource =
    "J. Bruck et al.: Efficient Algorithms for All-to-All Communications in Multiport "
    "Message-Passing Systems. IEEE TPDS 8 (1997)";

using plan::Location;

// Scratch chunks, the lowest free one first.
class Store {
 public:
  Location take(const plan::Builder& plan) {
    if (free_.empty()) free_.insert(size_++);
    return plan.scratch(free_.extract(free_.begin()).value(), Form::kResult);
  }
  void give_back(const Location& at) {
    if (at.place == plan::Place::kScratch) free_.insert(at.chunk);
  }

 private:
  std::set<std::uint32_t> free_;
  std::uint32_t size_ = 0;
};

int first_round(int distance) { return level_count(distance & -distance); }
int last_round(int distance) { return level_count(distance + 1) - 1; }

// What is where on one rank, by the distance that the blocks have to go in all.
class Blocks {
 public:
  Blocks(plan::Builder& plan, int me) : plan_(plan), me_(me), n_(plan.shape().rank_count) {
    for (int distance = 0; distance < n_; ++distance)
      at_.push_back(plan.input(chunk_of(wrap(me + distance, n_))));
  }

  // Own blocks whose place in the output is filled before, or in the round when, they are sent.
  void make_way() {
    for (int distance = 1; distance < n_; ++distance) {
      if (last_round(n_ - distance) > first_round(distance)) continue;
      Location& at = at_[static_cast<std::size_t>(distance)];
      const Location saved = store_.take(plan_);
      plan_.move(block(me_, distance), at, saved);
      at = saved;
    }
  }

  void round(int bit) {
    const int jump = 1 << bit, from = wrap(me_ - jump, n_);
    std::vector<Move> sends, takes;
    std::vector<Location> sent;
    for (int distance = jump; distance < n_; ++distance) {
      if ((distance & jump) == 0) continue;
      const int gone = distance & (jump - 1);
      const auto next = chunk_of(wrap(me_ - distance, n_));
      Location& at = at_[static_cast<std::size_t>(distance)];
      sent.push_back(at);
      sends.push_back({block(wrap(me_ - gone, n_), distance),
                       {at},
                       {plan_.to(wrap(me_ + jump, n_), Form::kResult)}});
      at = last_round(distance) == bit ? plan_.output(next) : store_.take(plan_);
      takes.push_back(
          {block(wrap(from - gone, n_), distance), {plan_.from(from, Form::kResult)}, {at}});
    }
    exchange(plan_, leads(me_, jump, n_), sends, takes);
    for (const Location& at : sent) store_.give_back(at);
  }

 private:
  // The chunk of the message that goes from `giver` to the rank at a distance.
  std::uint32_t block(int giver, int distance) const {
    return block_of(giver, wrap(giver + distance, n_), n_);
  }

  plan::Builder& plan_;
  int me_, n_;
  Store store_;
  std::vector<Location> at_;
};

void build(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const auto mine = chunk_of(me.value);
  plan.move(block_of(me.value, me.value, n), plan.input(mine), plan.output(mine));
  Blocks blocks(plan, me.value);
  blocks.make_way();
  for (int bit = 0; bit < level_count(n); ++bit) blocks.round(bit);
}

}  // namespace

constinit const Algorithm bruck_all_to_all(
    "bruck", Collective::kAllToAll, build,
    {.rounds = "<= k",
     .bytes = "<= k/2 M",
     .peers = "<= 2k",
     .scratch = "< 3n/2",
     .waits = "<= 2k"},
    {.even = true, .sends_more = true, .good_for = "few channels: any n", .source = kSource});

}  // namespace tutti
