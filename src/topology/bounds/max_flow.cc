#include "topology/bounds/max_flow.h"

#include <algorithm>

namespace tutti::topology {

std::size_t MaxFlow::add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity) {
  const auto half = static_cast<std::uint32_t>(halves_.size());
  edges_[from].push_back(half);
  edges_[to].push_back(half + 1);
  halves_.push_back({to, 0});
  halves_.push_back({from, 0});
  capacities_.push_back(capacity);
  return capacities_.size() - 1;
}

std::int64_t MaxFlow::run(std::uint32_t source, std::uint32_t sink, std::int64_t enough) {
  for (std::size_t e = 0; e < capacities_.size(); ++e) {
    halves_[2 * e].residual = capacities_[e];
    halves_[2 * e + 1].residual = 0;
  }
  std::int64_t total = 0;
  while (total < enough && find_levels(source, sink)) {
    next_.assign(edges_.size(), 0);
    while (const std::int64_t more = augment(source, sink)) {
      total += more;
      if (total >= enough) break;
    }
  }
  return total;
}

// Distances from the source over edges with room, as far as the sink; false if it has none. Then
// everything that can be reached was visited, so the last call leaves the cut behind.
bool MaxFlow::find_levels(std::uint32_t source, std::uint32_t sink) {
  levels_.assign(edges_.size(), -1);
  queue_.assign(1, source);
  levels_[source] = 0;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::uint32_t node = queue_[i];
    for (const std::uint32_t h : edges_[node]) {
      const Half& half = halves_[h];
      if (half.residual == 0 || levels_[half.to] >= 0) continue;
      levels_[half.to] = levels_[node] + 1;
      if (half.to == sink) return true;
      queue_.push_back(half.to);
    }
  }
  return false;
}

// One path along the levels; 0 if there is none left.
std::int64_t MaxFlow::augment(std::uint32_t source, std::uint32_t sink) {
  path_.clear();
  std::uint32_t node = source;
  while (node != sink) {
    bool advanced = false;
    for (std::size_t& i = next_[node]; i < edges_[node].size(); ++i) {
      const std::uint32_t h = edges_[node][i];
      const Half& half = halves_[h];
      if (half.residual == 0 || levels_[half.to] != levels_[node] + 1) continue;
      path_.push_back(h);
      node = half.to;
      advanced = true;
      break;
    }
    if (advanced) continue;
    if (path_.empty()) return 0;
    node = halves_[path_.back() ^ 1].to;
    ++next_[node];
    path_.pop_back();
  }
  std::int64_t room = halves_[path_.front()].residual;
  for (const std::uint32_t h : path_) room = std::min(room, halves_[h].residual);
  for (const std::uint32_t h : path_) {
    halves_[h].residual -= room;
    halves_[h ^ 1].residual += room;
  }
  return room;
}

}  // namespace tutti::topology
