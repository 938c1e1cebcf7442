// File: topology/checks/alike.cc: one finding for one cause.
//
// What has the same cause has the same code, words and figures, and only another place. Such
// findings become one, whose place lists the parts: "host0/gpu0-gpu3", "host0-host7/mlx5_1". So
// what a check says of one part must not name what differs by part without need.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "topology/checks/parts.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostListed = 12;

// "mlx5_10" is "mlx5_" and 10; a name without a number at its end has -1.
std::pair<std::string_view, long long> numbered(std::string_view name) {
  const std::size_t stem = name.find_last_not_of("0123456789") + 1;  // npos + 1: 0.
  const std::string_view digits = name.substr(stem);
  // "07" is another name than "7".
  if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return {name, -1};
  const auto number = parse_number<long long>(digits);
  return number ? std::pair(name.substr(0, stem), *number) : std::pair(name, -1LL);
}

// "gpu0-gpu3", "gpu6": those in a row by their ends.
std::vector<std::string> runs_of(std::vector<std::string> names) {
  std::sort(names.begin(), names.end(),
            [](const std::string& a, const std::string& b) { return numbered(a) < numbered(b); });
  std::vector<std::string> runs;
  for (std::size_t first = 0, last; first < names.size(); first = last + 1) {
    last = first;
    const auto [stem, number] = numbered(names[first]);
    while (number >= 0 && last + 1 < names.size() &&
           numbered(names[last + 1]) ==
               std::pair(stem, number + static_cast<long long>(last + 1 - first))) {
      ++last;
    }
    runs.push_back(last == first ? names[first] : names[first] + "-" + names[last]);
  }
  return runs;
}

std::string listed_in_short(std::vector<std::string> items, std::string_view separator) {
  const std::size_t more = items.size() > kMostListed ? items.size() - kMostListed : 0;
  items.resize(items.size() - more);
  std::string list = list_of(
      items, [](const std::string& item) { return item; }, separator);
  if (more > 0) list += fmt::format(" and {} more", more);
  return list;
}

}  // namespace

std::string place_of(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> of_host;
  for (const std::string& name : names) {
    const std::size_t slash = name.find('/');
    const bool within = slash != std::string::npos;
    of_host[within ? name.substr(0, slash) : ""].push_back(within ? name.substr(slash + 1) : name);
  }
  // Hosts of which the same parts are meant, together.
  std::map<std::string, std::vector<std::string>> hosts;
  for (auto& [host, parts] : of_host) {
    hosts[listed_in_short(runs_of(std::move(parts)), ", ")].push_back(host);
  }
  std::vector<std::string> places;
  for (const auto& [parts, own] : hosts) {
    for (const std::string& run : runs_of(own)) {
      places.push_back(run.empty() ? parts : run + "/" + parts);
    }
  }
  return listed_in_short(std::move(places), "; ");
}

void join_alike(const std::set<std::string>& places, Findings& findings) {
  using Key = std::tuple<Severity, std::string, std::string, std::string, std::string, double>;
  std::map<Key, std::size_t> first;
  std::map<std::size_t, std::vector<std::string>> names;
  Findings joined;
  for (Finding& finding : findings) {
    const auto [at, fresh] =
        places.count(finding.where) == 0
            ? std::pair(first.end(), true)
            : first.emplace(Key{finding.severity, finding.code, finding.what, finding.evidence,
                                finding.remedy, finding.loss},
                            joined.size());
    const std::size_t index = fresh ? joined.size() : at->second;
    if (at != first.end()) names[index].push_back(finding.where);
    if (fresh) joined.push_back(std::move(finding));
  }
  for (const auto& [index, own] : names) {
    if (own.size() > 1) joined[index].where = place_of(own);
  }
  findings = std::move(joined);
}

}  // namespace tutti::topology
