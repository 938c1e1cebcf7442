// File: sweep/noise.h: whether other work on this machine disturbs what is measured.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// "load 14 on 2 CPUs" if other processes take half of the CPUs or more, else "". `samples` are
/// texts of /proc/loadavg. The median of the running threads counts, less `ours`: the reader's and
/// those that work for it.
std::string busy_words(std::span<const std::string> samples, int online_cpus, int ours = 1);

/// The same for this machine, now; takes 20 ms. Ask before ranks start: they keep CPUs busy. `ours`
/// counts the ranks of this host that a launcher started.
std::string busy_now(int ours = 1);

/// 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Judges figures by the rounds of their measurement: on a quiet machine the median round is close
/// to the fastest one.
class Noise {
 public:
  static constexpr double kApart = 2;     // A median above so many times the fastest is disturbed.
  static constexpr double kShare = 0.25;  // More disturbed figures than this share: a busy machine.

  /// Times of the rounds of one figure.
  void add(std::span<const double> times);
  /// Two rates that are alike on a quiet machine: this one must not be kApart times slower.
  void compare(std::string_view what, double rate, std::string_view usual, double usual_rate);

  /// Why this machine was busy; "": it was not.
  std::string verdict() const;

 private:
  std::size_t figures_ = 0, disturbed_ = 0;
  std::string slow_;
};

}  // namespace tutti::perf
