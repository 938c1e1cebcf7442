// File: exec/trial.h: finds the best of several plans by taking turns, where the first was chosen
// by an estimate that turned out wrong.
//
// The model. Every rank makes the same calls in the same order, and is told the same time for each:
// the slowest rank's. So all ranks go through the same states and take the same plan in each call,
// without a message of their own. Calls are counted from the first of a route. The first plan runs
// until kCalls calls took more than kWrong times what was predicted, of at most kPatience calls
// that are looked at; then each other plan has kCalls calls, of which the first (it binds the plan,
// and finds the caches cold) does not count, and the one whose best call was the fastest stays.
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
  static constexpr int kCalls = 4;
  static constexpr int kPatience = 64;
  static constexpr double kWrong = 2;
  static constexpr int kAgain = 4096;

  /// Of so many plans, best first as predicted. One plan: nothing to try. No prediction (0): all
  /// are compared.
  Trial(std::size_t plans, double predicted_us)
      : plans_(plans), predicted_us_(predicted_us), settled_(plans < 2) {}
  Trial() = default;

  /// The plan for the next call.
  std::size_t plan() const { return plan_; }
  /// Whether that will not change any more.
  bool settled() const { return settled_; }

  /// Another call begins; settled plans may come to be compared again.
  void begin() {
    if (!settled_ || plans_ < 2 || predicted_us_ > 0 || ++calls_ < kAgain) return;
    *this = Trial(plans_, predicted_us_);
  }

  /// How long a call took on the slowest rank, which went by plan(). Times may come late: those of
  /// the first call of a plan are not counted, nor is a call that nobody has timed (0).
  void note(double us) {
    if (settled_ || us <= 0) return;
    if (calls_++ == 0) return;
    best_us_ = best_us_ == 0 ? us : std::min(best_us_, us);
    if (plan_ == 0) {
      wrong_ += us > kWrong * predicted_us_ ? 1 : 0;
      if (wrong_ < kCalls) {
        settled_ = calls_ >= kPatience;
        return;
      }
    } else if (calls_ < kCalls) {
      return;
    }
    times_.push_back(best_us_);
    next();
  }

 private:
  void next() {
    calls_ = 0;
    best_us_ = 0;
    if (++plan_ < plans_) return;
    plan_ =
        static_cast<std::size_t>(std::min_element(times_.begin(), times_.end()) - times_.begin());
    settled_ = true;
  }

  std::size_t plans_ = 0;
  double predicted_us_ = 0;
  bool settled_ = true;
  std::size_t plan_ = 0;
  int calls_ = 0, wrong_ = 0;
  double best_us_ = 0;  // Of this plan.
  std::vector<double> times_;
};

}  // namespace tutti::exec
