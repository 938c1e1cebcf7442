// In which order lanes pass the ranks, as describe() of a communicator of devices says it.
#include <algorithm>
#include <numeric>

#include "algorithms/algorithm.h"
#include "plan/builder.h"
#include "plan/passes/passes.h"
#include "plan/text/lanes.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace tutti;
using namespace tutti::plan;

namespace {

/// By lane, an order in which each rank sends to the next one, and the last to the first.
Plan rings(const std::vector<std::vector<int>>& orders) {
  const std::size_t ranks = orders[0].size();
  Plan plan;
  plan.shape.rank_count = static_cast<int>(ranks);
  plan.ranks.resize(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    Builder builder(plan.shape, 1);
    for (std::size_t lane = 0; lane < orders.size(); ++lane) {
      const auto& order = orders[lane];
      const auto at = std::find(order.begin(), order.end(), static_cast<int>(rank)) - order.begin();
      const int next = order[(static_cast<std::size_t>(at) + 1) % ranks];
      builder.lane(lane);
      builder.move(0, {builder.input(0)}, {builder.to(next, Form::kPartial)});
    }
    plan.ranks[rank] = std::move(builder).finish();
  }
  return plan;
}

std::vector<int> counted(int ranks) {
  std::vector<int> order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Plan plan_of(Collective collective, std::string_view name, int ranks) {
  return build(*find_algorithm(collective, name), {collective, ranks});
}

}  // namespace

TEST_CASE("a ring and a chain have an order, other lanes have none") {
  CHECK(order_of(plan_of(Collective::kAllReduce, "ring", 5), 0) == counted(5));
  CHECK(order_of(rings({{0, 3, 1, 2}}), 0) == std::vector<int>{0, 3, 1, 2});
  // A chain that begins in the middle.
  Plan chain = rings({{2, 0, 1, 3}});
  chain.ranks[3].lanes.clear();
  CHECK(order_of(chain, 0) == std::vector<int>{2, 0, 1, 3});
  CHECK(order_of(plan_of(Collective::kAllReduce, "two_shot", 4), 0).empty());
  // Two rings side by side, and a ring with a tail.
  CHECK(order_of(rings({{1, 0}}), 0) == std::vector<int>{0, 1});
  Plan two = rings({{0, 1, 2, 3}});
  two.ranks[1].lanes[0].locations[1].peer = 0;
  two.ranks[3].lanes[0].locations[1].peer = 2;
  CHECK(order_of(two, 0).empty());
}

TEST_CASE("alike lanes are one line, with the devices by which they leave the host") {
  const std::vector<int> up{0, 1, 2, 3}, down{0, 3, 2, 1};
  const Plan plan = rings({up, up, down, up, down});
  CHECK(lanes_in_words(plan, {}, "    ") == "    lanes 0-1,3: 0 1 2 3\n    lanes 2,4: 0 3 2 1\n");
  const std::vector<int> hosts{0, 0, 1, 1};
  CHECK(lanes_in_words(plan, {1, hosts, "mlx5_0:1 and mlx5_4:1"}, "") ==
        "lanes 0-1,3: 0 1 2 3, to other hosts by mlx5_0:1 and mlx5_4:1\nlanes 2,4: 0 3 2 1\n");
  CHECK(lanes_in_words(rings({up}), {2, hosts, ""}, "") == "lane 0: 0 1 2 3\n");
  const std::string shot =
      lanes_in_words(plan_of(Collective::kAllReduce, "two_shot", 4), {0, hosts, "mlx5_1:1"}, "");
  CHECK(shot == "lane 0: each rank to up to 3 peers, to other hosts by mlx5_1:1\n");
  CHECK(lanes_in_words(rings({{0}}), {}, "").empty());
}

TEST_CASE("orders of many ranks are folded, and lines end at 100 columns") {
  CHECK(lanes_in_words(rings({counted(64)}), {}, "") == "lane 0: 0-63\n");
  std::vector<int> down = counted(64);
  std::reverse(down.begin(), down.end());
  const std::string text = lanes_in_words(rings({down}), {}, "    ");
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.starts_with("    lane 0: 0 63 62"));
  test::for_each_plan({1, 2, 33}, [](const Plan& plan) {
    std::string rest = lanes_in_words(plan, {}, "    ");
    INFO(plan.name << "\n" << rest);
    for (std::size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1))
      REQUIRE(end <= 100);
    REQUIRE(rest.empty());
  });
}
