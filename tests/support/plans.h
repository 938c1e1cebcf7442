// File: support/plans.h: every plan that the library can build, for properties that all of them
// have.
#pragma once
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <vector>

#include "algorithms/algorithm.h"
#include "support/trees.h"

namespace tutti::test {

/// Calls `visit` with the plan of every registered algorithm for every rank count given, with
/// several roots, groups, weights and trees where they matter.
inline void for_each_plan(std::initializer_list<int> rank_counts,
                          const std::function<void(const plan::Plan&)>& visit) {
  for (const Algorithm* algorithm : algorithms()) {
    for (const int n : rank_counts) {
      std::vector<int> roots{0};
      if (has_root(algorithm->collective) && n > 1) roots = {0, n / 2, n - 1};
      roots.erase(std::unique(roots.begin(), roots.end()), roots.end());
      for (const int root : roots) {
        const plan::Shape plain{algorithm->collective, n, root};
        if (algorithm->applies(plain)) {  // It ignores the other members of a shape.
          visit(build(*algorithm, plain));
          continue;
        }
        std::vector<plan::Shape> shapes;
        const plan::GroupSizes all_groups[] = {2, 3, 4, {2, 4}};
        for (const auto& groups : all_groups)
          shapes.push_back({algorithm->collective, n, root, groups});
        auto& weights = shapes.emplace_back(plain).weights;
        for (int rank = 0; rank < n; ++rank) weights.push_back((rank + 1) % 3);
        std::mt19937 random(static_cast<unsigned>(n));
        auto& trees = shapes.emplace_back(plain).trees;
        trees = {chain(n, root), random_tree(random, n, root), star(n, root)};
        for (const auto& shape : shapes) {
          if (algorithm->applies(shape)) visit(build(*algorithm, shape));
        }
      }
    }
  }
}

}  // namespace tutti::test
