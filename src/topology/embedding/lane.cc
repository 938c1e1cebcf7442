// What a lane says of its trees, in either notation.
#include <algorithm>

#include "topology/embedding/embed.h"

namespace tutti::topology {

std::size_t Lane::group_of(std::size_t place) const {
  const auto after = std::upper_bound(starts.begin(), starts.end(), place);
  return static_cast<std::size_t>(after - starts.begin()) - 1;
}

Source Lane::source(std::size_t root, std::size_t place) const {
  if (place == root) return {};
  if (is_ring()) {
    const std::size_t previous = (place + order.size() - 1) % order.size();
    return {static_cast<std::uint32_t>(previous), hops[previous]};
  }
  const std::size_t group = group_of(place);
  const Entry& entry = entries[root * groups() + group];
  if (entry.at == place) return entry.source;
  return spread[entry.at * width() + place - starts[group]];
}

std::size_t Lane::depth() const {
  if (is_ring()) return order.size() - 1;
  constexpr std::size_t kUnknown = static_cast<std::size_t>(-1);
  // By entry and member; a parent is always nearer to the root, so chains are followed only until
  // something known.
  std::vector<std::size_t> below(spread.size(), kUnknown), path;
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::size_t first = starts[group_of(at)];
    const std::size_t end = starts[group_of(at) + 1];
    std::size_t* line = &below[at * width()];
    line[at - first] = 0;
    for (std::size_t member = 0; member < end - first; ++member) {
      std::size_t m = member;
      for (; line[m] == kUnknown; m = spread[at * width() + m].from - first) path.push_back(m);
      for (std::size_t up = line[m]; !path.empty(); path.pop_back()) line[path.back()] = ++up;
    }
  }
  std::size_t deepest = 0;
  std::vector<std::size_t> level(groups());  // Depth of one root's entries.
  for (std::size_t root = 0; root < order.size(); ++root) {
    level.assign(groups(), kUnknown);
    level[group_of(root)] = 0;
    for (std::size_t group = 0; group < groups(); ++group) {
      const auto entry = [&](std::size_t g) -> const Entry& {
        return entries[root * groups() + g];
      };
      std::size_t g = group;
      for (; level[g] == kUnknown; g = group_of(entry(g).source.from)) path.push_back(g);
      for (; !path.empty(); path.pop_back()) {
        const std::size_t from = entry(path.back()).source.from;
        const std::size_t upper = group_of(from);
        level[path.back()] =
            level[upper] + 1 + below[entry(upper).at * width() + from - starts[upper]];
      }
      const std::size_t at = entry(group).at;
      for (std::size_t m = 0; m < starts[group + 1] - starts[group]; ++m)
        deepest = std::max(deepest, level[group] + below[at * width() + m]);
    }
  }
  return deepest;
}

}  // namespace tutti::topology
