// What algorithms along several trees claim beyond what holds for all (algorithms_test.cc).
#include <algorithm>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/trees/double_tree.h"
#include "support/catch.h"
#include "support/plan_cost.h"
#include "support/trees.h"

namespace tutti {
namespace {

using plan::Plan;
using plan::Shape;
using test::cost_of;

TEST_CASE("each tree of the shape has a lane of its own") {
  for (const Algorithm* algorithm : algorithms()) {
    for (int n = 1; n <= 33; ++n) {
      Shape shape{algorithm->collective, n, n / 3};
      if (algorithm->applies(shape)) break;  // It does without trees.
      shape.trees = test::some_trees(algorithm->collective, n, n / 3, 3);
      if (!algorithm->applies(shape)) break;
      INFO(to_string(algorithm->collective) << ", " << n << " ranks");
      CHECK(build(*algorithm, shape).ranks[0].lanes.size() == shape.trees.size());
    }
  }
}

TEST_CASE("reduces along trees are deterministic where every tree adds up whole blocks in order") {
  // By rank: the parents. The second half by way of a rank of it, whose own half is flat or not;
  // the first by way of another; binomial, which the root would have to add up in several steps.
  const std::pair<std::vector<int>, bool> trees[] = {
      {{0, 0, 0, 0, 0, 4, 4, 4}, true},  {{0, 0, 0, 0, 0, 4, 4, 6}, true},
      {{0, 0, 0, 0, 5, 0, 5, 5}, true},  {{4, 0, 0, 0, 4, 4, 4, 4}, false},
      {{0, 0, 0, 0, 0, 3, 4, 4}, false}, {{0, 0, 0, 2, 0, 4, 4, 6}, false}};
  for (const auto& [parents, canonical] : trees) {
    for (const Collective collective : {Collective::kReduce, Collective::kAllReduce}) {
      Shape shape{collective, 8, 0};
      for (int rank = 0; rank < 8; ++rank) {
        if (parents[static_cast<std::size_t>(rank)] == rank) shape.root = rank;
      }
      shape.trees = {test::star(8, shape.root), {1, parents}};
      INFO(to_string(collective) << " at the root " << shape.root);
      const Plan plan = build(*find_algorithm(collective, "packed_trees"), shape);
      CHECK((plan.contract == Contract::kDeterministic) == canonical);
    }
  }
}

TEST_CASE("in double trees nobody but the root has children twice") {
  for (int n = 1; n <= 100; ++n) {
    INFO(n << " ranks");
    for (int rank = 0; rank < n; ++rank) {
      const TreePlace trees[] = {double_tree(Rank{rank}, 0, n), double_tree(Rank{rank}, 1, n)};
      if (rank > 0) CHECK((trees[0].children.empty() || trees[1].children.empty()));
      for (const TreePlace& tree : trees) CHECK(tree.children.size() <= 2);
    }
  }
}

}  // namespace
}  // namespace tutti
