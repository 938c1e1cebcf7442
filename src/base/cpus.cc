#include "base/cpus.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/folder.h"

namespace tutti {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// CPUs that `quota` microseconds per `period` come to; 0: no limit.
int whole_cpus(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : 0;
}

}  // namespace

int current_cpu() { return sched_getcpu(); }

bool leave_cpus(const CpuSet& crowded) {
  CpuSet allowed{}, rest{};
  if (syscall(SYS_sched_getaffinity, 0, sizeof(allowed), allowed.data()) <= 0) return false;
  for (std::size_t i = 0; i < rest.size(); ++i) rest[i] = allowed[i] & ~crowded[i];
  if (rest == CpuSet{} || syscall(SYS_sched_setaffinity, 0, sizeof(rest), rest.data()) != 0)
    return false;
  // Forbidding the CPUs has moved the thread; what it was allowed before is not ours to change.
  return syscall(SYS_sched_setaffinity, 0, sizeof(allowed), allowed.data()) == 0;
}

// The tightest limit on the way from this process's cgroup up to the root.
int quota_cpus() {
  int limit = 0;
  const auto tighten = [&limit](int cpus) {
    if (cpus > 0) limit = limit == 0 ? cpus : std::min(limit, cpus);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const auto colon = line.find(':'), second = line.find(':', colon + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(colon + 1, second - colon - 1);
    for (std::string path = line.substr(second + 1);;) {
      if (controllers.empty()) {  // v2: "quota period", or "max period".
        std::istringstream max(first_line("/sys/fs/cgroup" + path + "/cpu.max"));
        double quota = 0, period = 0;
        if (max >> quota >> period) tighten(whole_cpus(quota, period));
      } else if (controllers.find("cpu") != std::string::npos) {
        const std::string base = "/sys/fs/cgroup/" + controllers + path;
        const std::string quota = first_line(base + "/cpu.cfs_quota_us");
        const std::string period = first_line(base + "/cpu.cfs_period_us");
        if (!quota.empty() && !period.empty()) {
          tighten(whole_cpus(std::atof(quota.c_str()), std::atof(period.c_str())));
        }
      }
      if (path.empty() || path == "/") break;
      path.resize(path.find_last_of('/'));
    }
  }
  return limit;
}

CpuSet affinity() {
  CpuSet set{};
  // The raw call writes as many words as the kernel's mask has, and fails if they do not fit.
  std::array<std::uint64_t, 1024> words{};
  const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(words), words.data());
  if (bytes > 0)
    std::copy_n(words.begin(), set.size(), set.begin());
  else
    set[0] = 1;
  return set;
}

int usable_cpus() {
  int count = 0;
  for (const std::uint64_t word : affinity()) count += std::popcount(word);
  const int quota = quota_cpus();
  return std::max(1, quota > 0 ? std::min(count, quota) : count);
}

int numa_nodes() {
  static const int known = [] {
    const auto names = names_in("/sys/devices/system/node");
    if (!names) return 1;
    const auto is_node = [](const std::string& name) {
      return name.starts_with("node") && name.find_first_not_of("0123456789", 4) == name.npos;
    };
    return std::max(static_cast<int>(std::ranges::count_if(*names, is_node)), 1);
  }();
  return known;
}

std::size_t last_level_cache_bytes() {
  // The kernel's figures for this CPU's caches. The C library's figure is the whole package's on
  // some machines, and a virtual machine has only a part of that.
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string text =
        first_line(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    if (text.empty()) break;
    const auto unit = text.back() == 'M' ? std::size_t{1} << 20 : std::size_t{1} << 10;
    largest = std::max(largest, std::strtoul(text.c_str(), nullptr, 10) * unit);
  }
  return largest != 0 ? largest : std::size_t{32} << 20;
}

}  // namespace tutti
