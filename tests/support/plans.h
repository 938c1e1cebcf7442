// File: support/plans.h: every plan that the library can build, for properties that all of them
// have.
#pragma once
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <vector>

#include "algorithms/algorithm.h"

namespace tutti::test {

/// Calls `visit` with the plan of every registered algorithm for every rank count given, with
/// several roots and group sizes where they matter.
inline void for_each_plan(std::initializer_list<int> rank_counts,
                          const std::function<void(const plan::Plan&)>& visit) {
  for (const Algorithm* algorithm : algorithms()) {
    for (const int n : rank_counts) {
      std::vector<int> roots{0};
      if (has_root(algorithm->collective) && n > 1) roots = {0, n / 2, n - 1};
      roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
      for (const int root : roots) {
        for (const int group : {1, 2, 3, 4}) {
          const plan::Shape shape{algorithm->collective, n, root, group};
          // Algorithms that ignore groups apply without them too: once is enough.
          const bool ignores_groups = algorithm->applies({algorithm->collective, n, root, 1});
          if (!algorithm->applies(shape) || (group > 1 && ignores_groups)) continue;
          visit(build(*algorithm, shape));
        }
      }
    }
  }
}

}  // namespace tutti::test
