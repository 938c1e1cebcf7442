// File: exec/trial.h: finds the best of several plans by taking turns, where the first was chosen
// by an estimate that turned out wrong.
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
// Where nothing is predicted but several plans are offered, all are compared, and again every
// kAgain calls: which is fastest may depend on where ranks run, and they are moved.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::exec {

class Trial {
 public:
  static constexpr std::size_t kCalls = 5;
  static constexpr std::size_t kPatience = 64;
  static constexpr double kWrong = 2;
  static constexpr int kAgain = 4096;
  static constexpr double kLongUs = 2000;

  /// Of so many plans, best first as predicted. One plan: nothing to try. No prediction (0): all
  /// are compared. Of each, so many calls do not count.
  Trial(std::size_t plans, double predicted_us, std::size_t uncounted = 1)
      : plans_(plans), predicted_us_(predicted_us), uncounted_(uncounted), settled_(plans < 2) {}
  Trial() = default;

  /// The plan for the next call.
  std::size_t plan() const { return plan_; }
  /// Whether that will not change any more.
  bool settled() const { return settled_; }

  /// Another call begins; settled plans may come to be compared again.
  void begin() {
    if (!settled_ || plans_ < 2 || predicted_us_ > 0 || ++since_ < kAgain) return;
    *this = Trial(plans_, predicted_us_, uncounted_);
  }

  /// How long a call took on the slowest rank, which went by plan(). Times may come late: those of
  /// the first call of a plan are not counted, nor is a call that nobody has timed (0).
  void note(double us) {
    if (settled_ || us <= 0) return;
    const bool cold = calls_++ < uncounted_;
    if (cold && (plan_ == 0 || us < kLongUs)) return;
    counted_.push_back(us);
    sum_us_ += us;
    if (plan_ == 0 && predicted_us_ > 0) {
      wrong_ += us > kWrong * predicted_us_ ? 1 : 0;
      if (wrong_ < kCalls) {
        settled_ = calls_ >= kPatience;
        return;
      }
    } else if (counted_.size() < kCalls && (counted_.size() < 2 || sum_us_ < kLongUs)) {
      return;
    }
    next();
  }

 private:
  void next() {
    const auto middle = counted_.begin() + static_cast<std::ptrdiff_t>((counted_.size() - 1) / 2);
    std::nth_element(counted_.begin(), middle, counted_.end());
    medians_.push_back(*middle);
    counted_.clear();
    sum_us_ = 0;
    calls_ = 0;
    if (++plan_ < plans_) return;
    plan_ = static_cast<std::size_t>(std::min_element(medians_.begin(), medians_.end()) -
                                     medians_.begin());
    settled_ = true;
  }

  std::size_t plans_ = 0;
  double predicted_us_ = 0;
  std::size_t uncounted_ = 1;
  bool settled_ = true;
  std::size_t plan_ = 0;
  std::size_t calls_ = 0, wrong_ = 0;  // Of this plan.
  std::vector<double> counted_;        // Of this plan,
  double sum_us_ = 0;                  // and their sum.
  std::vector<double> medians_;        // Of those before it.
  int since_ = 0;                      // It was settled.
};

}  // namespace tutti::exec
