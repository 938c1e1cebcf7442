#include "perf/sweep/noise.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <thread>

namespace tutti::perf {

std::string busy_words(std::span<const std::string> samples, int online_cpus, int ours) {
  std::vector<double> others;
  double load = 0;
  for (const std::string& sample : samples) {
    int running = 0;
    // The load over 1, 5 and 15 minutes, then the running threads / all threads.
    if (std::sscanf(sample.c_str(), "%lf %*f %*f %d/", &load, &running) == 2)
      others.push_back(running - ours);
  }
  if (others.empty()) return "";
  const double now = median(others);
  if (now < 1 || 2 * now < online_cpus) return "";
  return fmt::format("load {:.0f} on {} CPU{}", std::max(std::round(load), now), online_cpus,
                     online_cpus == 1 ? "" : "s");
}

std::string busy_now(int ours) {
  std::vector<std::string> samples;
  for (int i = 0; i < 5; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::ifstream file("/proc/loadavg");
    std::getline(file, samples.emplace_back());
  }
  return busy_words(samples, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), ours);
}

void Noise::add(std::span<const double> times) {
  if (times.size() < 2) return;
  ++figures_;
  const double fastest = *std::min_element(times.begin(), times.end());
  if (median({times.begin(), times.end()}) > kApart * fastest) ++disturbed_;
}

void Noise::compare(std::string_view what, double rate, std::string_view usual, double usual_rate) {
  if (rate * kApart >= usual_rate) return;
  slow_ = fmt::format("{}: {:.3g} GB/s, where {} reach {:.3g}", what, rate, usual, usual_rate);
}

std::string Noise::verdict() const {
  if (static_cast<double>(disturbed_) > kShare * static_cast<double>(figures_)) {
    return fmt::format(
        "in {} of {} figures the usual round took more than {:.0f} times the fastest", disturbed_,
        figures_, kApart);
  }
  return slow_;
}

}  // namespace tutti::perf
