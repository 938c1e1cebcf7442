#include "soak/schedstat.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace tutti::soak {

std::map<int, std::uint64_t> waited_ns(pid_t pid) {
  std::map<int, std::uint64_t> all;
  std::error_code gone;
  namespace fs = std::filesystem;
  for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", pid), gone)) {
    std::ifstream file(task.path() / "schedstat");
    std::uint64_t ran = 0, waited = 0;
    if (file >> ran >> waited) all[std::atoi(task.path().filename().c_str())] = waited;
  }
  return all;
}

}  // namespace tutti::soak
