// Scans: rank r's result is the sum over the ranks 0 ... r, or in an exclusive scan 0 ... r - 1.
//
// The canonical tree of the first m ranks consists of the aligned blocks that m's binary digits
// name, the largest one first, added from the right: of 7 ranks B4 + (B2 + B1). So a rank that
// meets its blocks in rising order of size, and adds each to the left of what it has, evaluates its
// tree; and the tree of all ranks up to the last is that of an all-reduce.
//
// Direct: each rank sends its input to all above it; one round.
//
// Doubling: ranks at distance 1, 2, 4, ... meet. The lower one gives its block's total, which the
// upper one adds to the left of its sum; the upper one gives its own, where a block that is made of
// the two has a rank above it. This is the method of W. D. Hillis, G. L. Steele: Data Parallel
// Algorithms. CACM 29 (1986), on the pairs of a hypercube.
//
// Two-shot: every rank owns a piece of the message, whose contributions it takes in rank order. It
// keeps the totals of the blocks so far as a binary counter keeps its digits: one more rank adds
// its contribution to the blocks that are full, and what comes of it on the way is the rank's
// result. So a piece costs log2(n) / 2 additions a rank, and each input is read and each output
// written once.
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/ranks.h"

namespace tutti {
namespace {

using plan::Location;

constexpr std::string_view kHillisSteele =
    "W. D. Hillis, G. L. Steele: Data Parallel Algorithms. CACM 29 (1986)";

void build_direct(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  std::vector<Location> above, sources;
  for (int rank = me.value + 1; rank < n; ++rank)
    above.push_back(plan.to(rank, Form::kContribution));
  if (!above.empty()) plan.move(0, plan.input(0), above);
  for (int rank = 0; rank < summed_ranks(plan.shape().collective, me.value, n); ++rank) {
    sources.push_back(rank == me.value ? plan.input(0) : plan.from(rank, Form::kContribution));
  }
  if (!sources.empty()) plan.move(0, sources, plan.output(0));
}

/// What a rank has in doubling. A sum that is missing is that of no ranks.
class Doubling {
 public:
  Doubling(plan::Builder& plan, Rank me)
      : plan_(plan), me_(me.value), n_(plan.shape().rank_count), total_(plan.input(0)) {
    if (plan.shape().collective == Collective::kScan) sum_ = total_;
  }

  void run() {
    for (int level = 0; level < level_count(n_); ++level) {
      const int peer = me_ ^ (1 << level);
      if (peer >= n_) continue;
      if (me_ < peer)
        meet_upper(level, peer);
      else
        meet_lower(level, peer);
    }
    if (me_ == 0 && sum_) plan_.move(0, *sum_, plan_.output(0));
  }

 private:
  /// Whether a rank's total of its block of 2^level ranks is due to a rank above that block: those
  /// that it can come to differ from this one in bits from `level` on.
  bool is_wanted(int rank, int level) const { return rank + (1 << level) < n_; }
  bool is_last(int level) const { return me_ >> (level + 1) == 0; }

  /// Where a sum is put that takes the place of `old`: there, if only `old` is there.
  Location in_place_of(const std::optional<Location>& old,
                       const std::optional<Location>& other) const {
    if (old && *old != plan_.input(0) && old->form == Form::kPartial && old != other) return *old;
    return free_scratch(Form::kPartial);
  }
  Location free_scratch(Form form) const {
    for (std::uint32_t index = 0;; ++index) {
      const auto is_here = [&](const std::optional<Location>& at) {
        return at && at->place == plan::Place::kScratch && at->chunk == index;
      };
      if (!is_here(total_) && !is_here(sum_)) return plan_.scratch(index, form);
    }
  }

  void meet_upper(int level, int peer) {
    const Form form = form_of(1 << level);
    plan_.move(0, total_, plan_.to(peer, form));
    if (!is_wanted(me_, level + 1)) return;
    const Location made = in_place_of(total_, sum_);
    plan_.move(0, {total_, plan_.from(peer, form)}, made);
    total_ = made;
  }

  void meet_lower(int level, int peer) {
    const Form form = form_of(1 << level);
    if (is_wanted(peer, level + 1)) plan_.move(0, total_, plan_.to(peer, form));
    const Location lower = plan_.from(peer, form);
    if (!is_wanted(me_, level + 1)) {
      const Location made = is_last(level) ? plan_.output(0)
                            : sum_         ? in_place_of(sum_, total_)
                                           : free_scratch(form);
      plan_.move(0, with(lower), made);
      sum_ = made;
    } else if (sum_ == total_) {  // Then so are the new ones.
      std::vector<Location> made{in_place_of(total_, {})};
      if (is_last(level)) made.push_back(plan_.output(0));
      plan_.move(0, {lower, total_}, made);
      total_ = made.front();
      sum_ = made.back();
    } else {
      keep_both(level, lower, form);
    }
  }

  /// The new total and the new sum are two; what came is needed for each. The output comes last: in
  /// place it is where the total may be.
  void keep_both(int level, const Location& lower, Form form) {
    const Location came = free_scratch(form);
    plan_.move(0, lower, came);
    const std::optional<Location> before = std::exchange(sum_, came);
    const Location total = in_place_of(total_, before);
    plan_.move(0, {came, total_}, total);
    total_ = total;
    if (!before && !is_last(level)) return;
    sum_ = is_last(level) ? plan_.output(0) : came;
    plan_.move(0, before ? std::vector{came, *before} : std::vector{came}, *sum_);
  }

  /// What is added up where `lower` comes before this rank's sum.
  std::vector<Location> with(const Location& lower) const {
    return sum_ ? std::vector{lower, *sum_} : std::vector{lower};
  }

  plan::Builder& plan_;
  const int me_, n_;
  Location total_;               // That of the block of 2^level ranks that this one is in.
  std::optional<Location> sum_;  // That of those of its ranks that this rank's result has.
};

void build_doubling(plan::Builder& plan, Rank me) { Doubling(plan, me).run(); }

/// A piece at its owner: what was added up so far, as the digits of a counter. Scratch chunk l has
/// the total of a block of 2^l ranks.
class Counter {
 public:
  Counter(plan::Builder& plan, std::uint32_t piece, int terms)
      : plan_(plan), piece_(piece), terms_(terms), sum_(chunk_of(level_count(terms))) {}

  /// Adds the contribution of `rank`, which is the next of `terms` ranks; `result` gets the sum.
  void add(int rank, const Location& contribution, const Location& result) {
    const std::uint32_t digits = chunk_of(rank);
    const int full = std::countr_one(digits);  // With the rank these make one block.
    const bool is_kept = rank + 1 < terms_;
    Location sum = contribution;
    if (full == 0) {
      const Location kept = plan_.scratch(0, Form::kContribution);
      step({sum}, is_kept || rank != 0 ? &kept : nullptr, rank == 0 ? &result : nullptr);
      sum = kept;
    }
    for (std::uint32_t left = digits; left != 0; left &= left - 1) {
      const int level = std::countr_zero(left);
      const bool is_last = std::has_single_bit(left), is_block = level + 1 == full && is_kept;
      const Location kept = plan_.scratch(is_block ? chunk_of(full) : sum_, Form::kPartial);
      step({plan_.scratch(chunk_of(level), form_of(1 << level)), sum},
           is_block || !is_last ? &kept : nullptr, is_last ? &result : nullptr);
      sum = kept;
    }
  }

  /// Two chunks for contributions that have to be kept until it is their turn.
  Location waiting(int rank) const {
    return plan_.scratch(sum_ + 1 + chunk_of(rank % 2), Form::kContribution);
  }

 private:
  /// With one slot per channel, a step that took a rank's contribution and gave it its result would
  /// wait for that rank's same step. So the result is given by a step of its own; and where it is
  /// one rank's contribution, as values that travel are rounded once more to become results.
  void step(const std::vector<Location>& sources, const Location* kept, const Location* result) {
    const auto is_slot = [](const Location& at) { return at.place == plan::Place::kSlot; };
    const bool apart = result != nullptr && ((is_slot(sources.back()) && is_slot(*result)) ||
                                             (sources.size() == 1 && kept != nullptr));
    const Location spare = plan_.scratch(sum_, form_of(static_cast<int>(sources.size())));
    if (apart && kept == nullptr) kept = &spare;
    std::vector<Location> targets;
    if (kept != nullptr) targets.push_back(*kept);
    if (result != nullptr && !apart) targets.push_back(*result);
    plan_.move(piece_, sources, targets);
    if (apart) plan_.move(piece_, *kept, *result);
  }

  plan::Builder& plan_;
  const std::uint32_t piece_;
  const int terms_;
  const std::uint32_t sum_;  // The scratch chunk of sums that are no block's.
};

/// Exclusive: the rank above gets the sum. In place that is where its contribution was, which so
/// has to be taken before.
void build_two_shot(plan::Builder& plan, Rank me) {
  const int n = plan.shape().rank_count;
  const bool exclusive = plan.shape().collective == Collective::kExclusiveScan;
  const int terms = exclusive ? n - 1 : n, piece = me.value;
  for (const int peer : ranks_after(me.value, n)) {
    if (me.value < terms)
      plan.move(chunk_of(peer), plan.input(chunk_of(peer)), plan.to(peer, Form::kContribution));
  }
  const auto contribution = [&](int rank) {
    return rank == me.value ? plan.input(chunk_of(piece)) : plan.from(rank, Form::kContribution);
  };
  const auto result = [&](int rank) {
    return rank == me.value ? plan.output(chunk_of(piece)) : plan.to(rank, Form::kResult);
  };
  Counter counter(plan, chunk_of(piece), terms);
  if (exclusive && terms > 0) plan.move(chunk_of(piece), contribution(0), counter.waiting(0));
  for (int rank = 0; rank < terms; ++rank) {
    if (exclusive && rank + 1 < terms)
      plan.move(chunk_of(piece), contribution(rank + 1), counter.waiting(rank + 1));
    if (exclusive)
      counter.add(rank, counter.waiting(rank), result(rank + 1));
    else
      counter.add(rank, contribution(rank), result(rank));
  }
  for (const int peer : ranks_before(me.value, n)) {
    if (!exclusive || me.value > 0)
      plan.move(chunk_of(peer), plan.from(peer, Form::kResult), plan.output(chunk_of(peer)));
  }
}

}  // namespace

constinit const Algorithm direct_scan("direct", Collective::kScan, build_direct,
                                      {.rounds = "1", .bytes = "(n-1) M", .peers = "n-1"},
                                      {.sends_more = true, .good_for = "smallest messages"});

constinit const Algorithm direct_exclusive_scan("direct", Collective::kExclusiveScan, build_direct,
                                                {.rounds = "1", .bytes = "(n-1) M", .peers = "n-1"},
                                                {.sends_more = true,
                                                 .good_for = "smallest messages"});

constinit const Algorithm doubling_scan(
    "doubling", Collective::kScan, build_doubling,
    {.rounds = "k", .bytes = "k M", .peers = "k", .scratch = "<= min(3, k-1)"},
    {.sends_more = true, .good_for = "many ranks, small messages", .source = kHillisSteele});

constinit const Algorithm doubling_exclusive_scan(
    "doubling", Collective::kExclusiveScan, build_doubling,
    {.rounds = "k", .bytes = "k M", .peers = "k", .scratch = "<= 3"},
    {.sends_more = true, .good_for = "many ranks, small messages", .source = kHillisSteele});

constinit const Algorithm two_shot_scan(
    "two_shot", Collective::kScan, build_two_shot,
    {.rounds = "2", .bytes = "2(n-1)/n M", .peers = "n-1", .scratch = "k+1"},
    {.pieces = piece_per_rank,
     .even = true,
     .sends_more = true,
     .good_for = "large messages: all ranks share the arithmetic"});

constinit const Algorithm two_shot_exclusive_scan(
    "two_shot", Collective::kExclusiveScan, build_two_shot,
    {.rounds = "2", .bytes = "2(n-1)/n M", .peers = "n-1", .scratch = "ceil(log2(n-1))+3"},
    {.pieces = piece_per_rank,
     .sends_more = true,
     .good_for = "large messages: all ranks share the arithmetic"});

}  // namespace tutti
