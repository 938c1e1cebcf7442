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
/// texts of /proc/loadavg; the median of what runs counts, less `ours`: the reader and who works
/// for it.
std::string busy_words(std::span<const std::string> samples, int online_cpus, int ours = 1);

/// That of this machine, now; takes 20 ms. Ask before ranks start: they keep CPUs busy. `ours`: of
/// ranks that a launcher started, those of this host.
std::string busy_now(int ours = 1);

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Judges figures by the rounds that they were measured in: on a quiet machine the median of them
/// is close to the fastest.
class Noise {
 public:
  static constexpr double kApart = 2;     // Times the fastest: disturbed.
  static constexpr double kShare = 0.25;  // More disturbed figures than that: a busy machine.

  /// Times of the rounds of one figure.
  void add(std::span<const double> times);
  /// Two rates that a quiet machine has alike: this one must not be kApart times slower.
  void compare(std::string_view what, double rate, std::string_view usual, double usual_rate);

  /// Why this machine was busy; "": it was not.
  std::string verdict() const;

 private:
  std::size_t figures_ = 0, disturbed_ = 0;
  std::string slow_;
};

}  // namespace tutti::perf
