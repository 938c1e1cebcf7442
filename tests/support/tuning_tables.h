// File: support/tuning_tables.h: tables of any content, from a seed.
#pragma once
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "planner/tuning_table.h"

namespace tutti::test {

/// Ranges that ascend, with ways of the collective that were measured.
inline std::vector<planner::Range> random_ranges(Collective collective, std::mt19937_64& random) {
  std::vector<planner::Range> ranges;
  std::size_t up_to = 0;
  for (std::size_t count = random() % 8; count > 0; --count) {
    up_to = up_to * 2 + 1 + random() % 5000;
    planner::Range range{up_to, {}};
    range.ways.push_back({std::string(planner::kEagerName), 1, 0});
    for (const Algorithm* algorithm : algorithms()) {
      if (algorithm->collective == collective)
        range.ways.push_back({std::string(algorithm->name), 1, 0});
    }
    std::shuffle(range.ways.begin(), range.ways.end(), random);
    range.ways.resize(1 + random() % range.ways.size());
    for (planner::Way& way : range.ways)
      way.microseconds = std::uniform_real_distribution<>(1e-3, 1e4)(random);
    std::sort(range.ways.begin(), range.ways.end(),
              [](const auto& a, const auto& b) { return a.microseconds < b.microseconds; });
    ranges.push_back(std::move(range));
  }
  return ranges;
}

inline planner::TuningTable random_table(std::mt19937_64& random) {
  planner::TuningTable table;
  table.key = {random(), "1." + std::to_string(random() % 100),
               random() % 2 ? "shared_memory" : "x", static_cast<int>(1 + random() % 300),
               static_cast<int>(1 + random() % 300)};
  std::uniform_real_distribution<> real(1e-4, 1e3);
  table.costs = {{real(random), real(random)}, real(random)};
  if (random() % 2 == 0) {
    int hosts = 0;
    for (int rank = 0; rank < table.key.rank_count; ++rank) {
      const auto host = static_cast<int>(random() % (static_cast<unsigned>(hosts) + 2));
      table.key.hosts.push_back(std::min(host, hosts));
      hosts = std::max(hosts, table.key.hosts.back() + 1);
    }
    table.network = {{real(random), real(random)}, real(random)};
    for (int host = 0; host < hosts && random() % 8 != 0; ++host)
      table.rates.push_back({"host" + std::to_string(random() % 9), real(random)});
    if (table.rates.size() != static_cast<std::size_t>(hosts)) table.rates.clear();
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const bool mapped : {false, true}) {
      const auto collective = static_cast<Collective>(i);
      table.of(collective, mapped) = random_ranges(collective, random);
    }
  }
  return table;
}

}  // namespace tutti::test
