// File: exec/adapt/online_tuning.h: finds the best of several plans by taking turns, where the
// first was chosen by an estimate that turned out wrong.
//
// The model. Every rank makes the same calls in the same order, and is told the same time for each:
// the slowest rank's. So all ranks go through the same states and take the same plan in each call,
// without a message of their own. Calls are counted from the first of a route. The first plan runs
// until kCalls calls took more than kWrong times what was predicted, of at most kPatience calls
// that are looked at; then each other plan has its turn: some calls that do not count (the first
// binds the plan, and caches and rings are cold), and kCalls that do. The one whose median is the
// smallest stays: a call may be slowed down by anything, and where ranks share CPUs one in some is
// lucky. There are few long calls, and less in them is by chance: two that take kLongUs are enough,
// and what is cold at their start does not matter.
//
// Where nothing is predicted but several plans are offered, all are compared, in up to kRounds
// rounds of turns: what holds the machine up for some calls in a row falls on one turn of several.
// Rounds end early once kEnoughUs were counted. After a second, which is 256 to 4096 calls, all
// are compared again: which is fastest may depend on where ranks run, and they are moved.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti::exec {

class OnlineTuning {
 public:
  static constexpr std::size_t kCalls = 5;
  static constexpr std::size_t kPatience = 64;
  static constexpr double kWrong = 2;
  static constexpr double kLongUs = 2000;
  static constexpr std::size_t kRounds = 3;
  static constexpr double kEnoughUs = 10'000;
  static constexpr double kAgainUs = 1e6;
  static constexpr int kLeastAgain = 256, kMostAgain = 4096;

  /// Tries `plans` plans, best first as predicted. One plan: nothing to try. No prediction (0): all
  /// are compared. The first `uncounted` calls of each plan do not count.
  OnlineTuning(std::size_t plans, double predicted_us, std::size_t uncounted = 1)
      : plans_(plans),
        predicted_us_(predicted_us),
        uncounted_(uncounted),
        converged_(plans < 2),
        counted_(converged_ ? 0 : plans) {
    // All that it will ever hold: calls allocate nothing.
    for (auto& us : counted_) us.reserve(std::max(kPatience, kCalls * kRounds));
  }
  OnlineTuning() = default;

  /// The plan for the next call.
  std::size_t plan() const { return plan_; }
  /// Whether that will not change any more.
  bool converged() const { return converged_; }

  /// Another call begins; settled plans may come to be compared again.
  void begin() {
    if (!converged_ || plans_ < 2 || predicted_us_ > 0 || ++since_ < again_) return;
    for (auto& us : counted_) us.clear();
    since_ = 0;
    plan_ = round_ = 0;
    counted_us_ = 0;
    converged_ = false;
  }

  /// How long a call took on the slowest rank, which went by plan(). Times may come late: those of
  /// the first call of a turn are not counted, nor is a call that nobody has timed (0).
  void note(double us) {
    if (converged_ || us <= 0) return;
    const bool cold = calls_++ < (round_ == 0 ? uncounted_ : 1);
    if (cold && (plan_ == 0 || us < kLongUs)) return;
    counted_[plan_].push_back(us);
    ++turn_calls_;
    turn_us_ += us;
    if (plan_ == 0 && predicted_us_ > 0) {
      wrong_ += us > kWrong * predicted_us_ ? 1 : 0;
      if (wrong_ < kCalls) {
        converged_ = calls_ >= kPatience;
        return;
      }
    } else if (turn_calls_ < kCalls && (turn_calls_ < 2 || turn_us_ < kLongUs)) {
      return;
    }
    next();
  }

 private:
  void next() {
    counted_us_ += turn_us_;
    turn_us_ = 0;
    turn_calls_ = calls_ = 0;
    if (++plan_ < plans_) return;
    plan_ = 0;
    if (++round_ < kRounds && predicted_us_ <= 0 && counted_us_ < kEnoughUs) return;
    converge();
  }

  void converge() {
    double least = 0;
    for (std::size_t plan = 0; plan < plans_; ++plan) {
      std::vector<double>& us = counted_[plan];
      const auto middle = us.begin() + static_cast<std::ptrdiff_t>((us.size() - 1) / 2);
      std::nth_element(us.begin(), middle, us.end());
      if (plan > 0 && *middle >= least) continue;
      least = *middle;
      plan_ = plan;
    }
    again_ = static_cast<int>(std::clamp<double>(kAgainUs / least, kLeastAgain, kMostAgain));
    converged_ = true;
  }

  std::size_t plans_ = 0;
  double predicted_us_ = 0;
  std::size_t uncounted_ = 1;
  bool converged_ = true;
  std::size_t plan_ = 0, round_ = 0;
  std::size_t calls_ = 0, turn_calls_ = 0;    // All calls of this turn; those that count.
  std::size_t wrong_ = 0;                     // Calls of the first plan.
  double turn_us_ = 0, counted_us_ = 0;       // Time of this turn; of those before it.
  std::vector<std::vector<double>> counted_;  // By plan.
  int since_ = 0, again_ = kMostAgain;        // Calls since it was settled; see begin.
};

}  // namespace tutti::exec
