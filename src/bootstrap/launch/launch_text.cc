// Reading what launchers and the system write.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "bootstrap/launch/launch.h"

namespace tutti::bootstrap {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::string first_host(std::string_view slurm_list) {
  std::string host;
  for (std::size_t i = 0; i < slurm_list.size() && slurm_list[i] != ','; ++i) {
    if (slurm_list[i] != '[') {
      host += slurm_list[i];
      continue;
    }
    const std::size_t close = std::min(slurm_list.find(']', i), slurm_list.size());
    const std::string_view range = slurm_list.substr(i + 1, close - i - 1);
    host += range.substr(0, range.find_first_of("-,"));
    i = close;
  }
  return host;
}

std::optional<int> tasks_of_node(std::string_view slurm_counts, int node) {
  while (!slurm_counts.empty()) {
    const std::string_view item = slurm_counts.substr(0, slurm_counts.find(','));
    slurm_counts.remove_prefix(std::min(slurm_counts.size(), item.size() + 1));
    const auto open = item.find("(x");
    const auto tasks = whole_number(item.substr(0, open));
    std::optional<int> nodes = 1;
    if (open != std::string_view::npos) {
      if (item.back() != ')') return std::nullopt;
      nodes = whole_number(item.substr(open + 2, item.size() - open - 3));
    }
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return tasks;
    node -= *nodes;
  }
  return std::nullopt;
}

std::optional<std::pair<std::string, int>> parse_host_port(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon > 255) return std::nullopt;
  const auto port = whole_number(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return std::nullopt;  // An IPv6 address without brackets: where would the port begin?
  if (!port || *port < 1 || *port > 65535 || host.empty()) return std::nullopt;
  return std::pair(std::string(host), *port);
}

std::string shorten(const std::string& text) {
  constexpr std::size_t kMost = 64;
  if (text.size() <= kMost) return text;
  std::array<char, 20> hash{};
  std::snprintf(hash.data(), hash.size(), "-%016llx",
                static_cast<unsigned long long>(hash_text(text)));
  return text.substr(0, kMost - 17) + hash.data();
}

std::optional<ProcessName> name_process(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  // pid (command) state parent …; the command may hold anything, parentheses too.
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return std::nullopt;
  std::istringstream rest(line.substr(close + 1));
  std::string state, skipped, start;
  ProcessName process;
  rest >> state >> process.parent;
  constexpr int kBetween = 17;  // Fields 5 to 21; the 22nd is the start time.
  for (int i = 0; i < kBetween; ++i) rest >> skipped;
  if (!(rest >> start)) return std::nullopt;
  process.command = line.substr(open + 1, close - open - 1);
  process.name = std::to_string(pid) + "@" + start;
  return process;
}

}  // namespace tutti::bootstrap
