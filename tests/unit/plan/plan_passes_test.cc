// Passes: whatever a pass makes of a plan verifies, and computes what the plan did, also in place,
// with any interleaving of ranks (the simulator, which shares no code with the verifier).
#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/plan_simulator.h"
#include "support/plans.h"
#include "support/plans_by_hand.h"

using namespace tutti;

namespace {

void check_verifies(const plan::Plan& plan) {
  const Status status = plan::verify(plan);
  INFO((status ? "" : status.error().what));
  INFO(plan.name << " on " << plan.ranks.size() << " ranks");
  REQUIRE(status);
}

// Sizes at the edges: fewer elements than pieces, one tile, several tiles of which some are empty.
void check_computes(const plan::Plan& plan, std::uint64_t seed) {
  check_verifies(plan);
  for (const std::size_t count : {1, 5, 17}) {
    for (const bool in_place : {false, true}) {
      test::SimulationOptions options;
      options.count = count;
      options.tile = 2 + seed % 3;
      options.slots = 1 + seed % 2;
      options.in_place = in_place;
      options.seed = seed;
      const auto failure = test::simulate(plan, options);
      INFO(plan::to_text(plan));
      INFO(failure.value_or(""));
      REQUIRE(!failure);
    }
  }
}

bool has_place(const plan::Plan& plan, plan::Place place) {
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) {
      for (const plan::Location& at : lane.locations) {
        if (at.place == place) return true;
      }
    }
  }
  return false;
}

// Whether ranks touch the buffers of no others than those of their host.
bool only_touches(const plan::Plan& plan, const std::vector<int>& hosts) {
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    for (const plan::Lane& lane : plan.ranks[rank].lanes) {
      for (const plan::Location& at : lane.locations) {
        const bool peers =
            at.place == plan::Place::kPeerInput || at.place == plan::Place::kPeerOutput;
        if (peers && hosts[at.peer] != hosts[rank]) return false;
      }
    }
  }
  return true;
}

}  // namespace

TEST_CASE("no pass changes what a plan computes") {
  std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  test::for_each_plan({1, 2, 3, 4, 6, 7, 8}, [&](const plan::Plan& plan) {
    check_computes(plan, ++seed);
    check_computes(plan::fuse(plan), ++seed);
    check_computes(plan::replicate(plan, 2), ++seed);
    for (const auto& lowered : {plan::direct(plan), plan::read(plan), plan::multicast(plan)}) {
      if (!lowered) continue;
      check_computes(*lowered, ++seed);
      check_computes(plan::fuse(*lowered), ++seed);
      check_computes(plan::replicate(*lowered, 3), ++seed);
    }
    // Passes go together in any order that makes sense.
    if (const auto lowered = plan::direct(plan::replicate(plan, 2)))
      check_computes(*lowered, ++seed);
    if (const auto lowered = plan::direct(plan)) {
      if (const auto both = plan::multicast(*lowered)) check_computes(*both, ++seed);
    }
  });
}

TEST_CASE("lanes on other rank orders compute the same, where any order of adding up is right") {
  std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  std::size_t moved = 0;
  test::for_each_plan({2, 3, 4, 6, 8}, [&](const plan::Plan& plan) {
    const CollectiveTraits traits = traits_of(plan.shape.collective);
    const bool rooted = traits.root_input || traits.root_output;
    std::vector<plan::RankOrder> orders(1 + random() % 3, plan::RankOrder(plan.ranks.size()));
    for (plan::RankOrder& order : orders) {
      std::iota(order.begin(), order.end(), std::uint16_t{0});
      std::shuffle(order.begin(), order.end(), random);
      const auto root = static_cast<std::size_t>(plan.shape.root);
      if (rooted) std::swap(order[root], *std::ranges::find(order, root));
    }
    const auto ordered = plan::reorder(plan, orders);
    const bool any_order = plan::allows_any_order(plan.shape.collective, plan.contract);
    INFO(plan.name << " of " << to_string(plan.shape.collective));
    CHECK((ordered.has_value() || !any_order));
    if (!ordered) return;
    ++moved;
    CHECK(ordered->pieces == plan.pieces * orders.size());
    check_computes(*ordered, ++seed);
    check_computes(plan::replicate(*ordered, 2), ++seed);
    if (const auto lowered = plan::direct(*ordered)) check_computes(*lowered, ++seed);
  });
  CHECK(moved > 100);
}

TEST_CASE("an order that moves the root, or canonical sums, does not hold") {
  const plan::RankOrder turned{1, 2, 3, 0};
  const auto of = [](Collective collective, std::string_view name) {
    return build(*find_algorithm(collective, name), {collective, 4});
  };
  const std::vector<plan::RankOrder> orders{turned};
  CHECK_FALSE(plan::reorder(of(Collective::kBroadcast, "binomial"), orders));
  CHECK_FALSE(plan::reorder(of(Collective::kAllReduce, "halving_doubling"), orders));
  CHECK(plan::reorder(of(Collective::kAllReduce, "ring"), orders));
}

TEST_CASE(
    "what is lowered for ranks of hosts is so within each host, and there as far as it can be") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::size_t in_part = 0;
  const auto check = [&](const plan::Plan& plan) {
    const std::size_t ranks = plan.ranks.size();
    std::vector<int> hosts(ranks), alone(ranks), together(ranks);
    std::iota(alone.begin(), alone.end(), 0);
    const unsigned most = 1 + random() % 4;
    for (int& host : hosts) host = static_cast<int>(random() % most);
    CHECK(!plan::direct(plan, alone));
    CHECK(plan::direct(plan, together) == plan::direct(plan));
    for (const auto& lowered :
         {plan::direct(plan, hosts), plan::direct(plan::replicate(plan, 2), hosts)}) {
      if (!lowered) continue;
      INFO(lowered->name << " of " << to_string(plan.shape.collective) << " on " << ranks);
      if (ranks <= 8)
        check_computes(*lowered, random());
      else
        check_verifies(*lowered);
      CHECK(only_touches(*lowered, hosts));
      in_part += has_place(*lowered, plan::Place::kSlot);
      if (const auto both = plan::multicast(*lowered)) check_verifies(*both);
    }
  };
  test::for_each_plan({1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 33}, check);
  CHECK(in_part > 100);
}

TEST_CASE("where nothing is added up, ranks that map all buffers need no slot") {
  test::for_each_plan({2, 3, 4, 5, 6, 7, 8, 12, 16, 17}, [](const plan::Plan& plan) {
    const Collective collective = plan.shape.collective;
    if (collective != Collective::kAllGather && collective != Collective::kBroadcast) return;
    INFO(plan.name << " of " << to_string(collective) << " on " << plan.shape.rank_count);
    const auto lowered = plan::direct(plan);
    REQUIRE(lowered);
    CHECK(!has_place(*lowered, plan::Place::kSlot));
  });
}

TEST_CASE("between two hosts of two ranks a hierarchical plan has slots along its rails only") {
  const plan::Plan plan = build(*find_algorithm(Collective::kAllReduce, "hierarchical"),
                                {Collective::kAllReduce, 4, 0, 2});
  const auto lowered = plan::direct(plan, std::vector<int>{0, 0, 1, 1});
  REQUIRE(lowered);
  CHECK(plan::to_text(*lowered, Rank{0}) ==
        "rank 0 scratch 1\n"
        " lane 0\n"
        "  move 2: input[2], input(1)[2] -> to(2):partial\n"
        "  move 0: input[0], input(1)[0] -> scratch[0]:partial\n"
        "  move 0: scratch[0]:partial, from(2):partial -> output[0]\n"
        "  move 0: output[0] -> to(2):result, output(1)[0]\n"
        "  signal 1\n"
        "  move 2: from(2):result -> output[2], output(1)[2]\n"
        "  signal 1\n"
        "  wait 1\n"
        "  wait 1\n");
}

TEST_CASE("one rank has nobody to be lowered for") {
  test::for_each_plan({1}, [](const plan::Plan& plan) {
    CHECK(!plan::direct(plan));
    CHECK(!plan::read(plan));
    CHECK(!plan::multicast(plan));
  });
}

TEST_CASE("plans that don't verify are not lowered, and fuse leaves them alone") {
  plan::Plan plan = test::built(Collective::kAllReduce, "two_shot", 3);
  plan.ranks[1].lanes[0].steps[0].peer = 1;
  CHECK(!plan::direct(plan));
  CHECK(!plan::read(plan));
  CHECK(!plan::multicast(plan));
  CHECK(plan::fuse(plan) == plan);
}

TEST_CASE("direct two-shot is one step and exit") {
  const auto plan = plan::direct(test::built(Collective::kAllReduce, "two_shot", 3));
  REQUIRE(plan);
  CHECK(plan->name == "two_shot+direct");
  CHECK(plan->entry_barrier);
  CHECK(plan::to_text(*plan, Rank{1}) ==
        "rank 1\n"
        " lane 0\n"
        "  move 1: input(0)[1], input[1], input(2)[1] -> output[1], output(2)[1], output(0)[1]\n"
        "  signal 2\n"
        "  signal 0\n"
        "  wait 0\n"
        "  wait 2\n");
}

TEST_CASE("direct plans of the flat algorithms have no slots left") {
  for (const int n : {2, 3, 5, 8}) {
    for (const plan::Plan& plan : {test::built(Collective::kAllReduce, "two_shot", n),
                                   test::built(Collective::kAllGather, "direct", n),
                                   test::built(Collective::kReduceScatter, "direct", n),
                                   test::built(Collective::kBroadcast, "direct", n),
                                   test::built(Collective::kBroadcast, "two_shot", n)}) {
      INFO(plan.name << " on " << n);
      const auto lowered = plan::direct(plan);
      REQUIRE(lowered);
      CHECK(!has_place(*lowered, plan::Place::kSlot));
      CHECK(!has_place(*lowered, plan::Place::kScratch));
    }
    // In place, everybody would overwrite what the others still read.
    CHECK(!plan::direct(test::built(Collective::kAllReduce, "one_shot", n)));
  }
}

TEST_CASE("plans for the kernel only copy, and go one way: reads, or writes to a root") {
  std::size_t lowered = 0;
  test::for_each_plan({2, 3, 5, 8}, [&](const plan::Plan& plan) {
    const auto reading = plan::read(plan);
    INFO(plan.name << " of " << to_string(plan.shape.collective) << " on " << plan.ranks.size());
    if (!reading) return;
    ++lowered;
    CHECK(!reduces(plan.shape.collective));
    const bool writes = traits_of(plan.shape.collective).root_output;
    CHECK(reading->name == plan.name + (writes ? "+write" : "+read"));
    CHECK(reading->entry_barrier);
    CHECK(has_place(*reading, plan::Place::kPeerInput) == !writes);
    CHECK(has_place(*reading, plan::Place::kPeerOutput) == writes);
    for (const plan::RankPlan& rank : reading->ranks) {
      for (const plan::Lane& lane : rank.lanes) {
        for (const plan::Step& step : lane.steps) {
          if (step.kind != plan::StepKind::kMove) continue;
          const auto first = lane.locations.begin() + step.first;
          const bool touches = std::any_of(
              first, first + step.source_count + step.target_count, [](const plan::Location& at) {
                return at.place == plan::Place::kPeerInput || at.place == plan::Place::kPeerOutput;
              });
          if (touches) CHECK(step.source_count == 1);
        }
      }
    }
  });
  CHECK(lowered > 0);
}

TEST_CASE("where one of two ranks would wait for the other, each moves half of every message") {
  const auto plan = plan::read(test::built(Collective::kBroadcast, "direct", 2), true);
  REQUIRE(plan);
  CHECK(plan->name == "direct+share");
  CHECK(plan::to_text(*plan, Rank{0}) ==
        "rank 0\n"
        " lane 0\n"
        "  move 0: input[0] -> output[0]\n"
        "  move 1: input[1] -> output[1], output(1)[1]\n"
        "  signal 1\n"
        "  wait 1\n");
  std::size_t shared = 0;
  test::for_each_plan({2}, [&](const plan::Plan& whole) {
    const auto lowered = plan::read(whole, true);
    if (!lowered || !lowered->name.ends_with("+share")) return;
    ++shared;
    INFO(lowered->name << " of " << to_string(whole.shape.collective) << " on "
                       << whole.ranks.size());
    CHECK(!reduces(whole.shape.collective));
    CHECK(lowered->pieces == 2 * whole.pieces);
    CHECK(has_place(*lowered, plan::Place::kPeerInput));
    CHECK(has_place(*lowered, plan::Place::kPeerOutput));
    CHECK(plan::verify(*lowered));
  });
  CHECK(shared > 0);
}

TEST_CASE("the flat algorithms that copy need no slots where the kernel copies") {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kBroadcast, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll}) {
    for (const int n : {2, 3, 8}) {
      const auto reading = plan::read(test::built(collective, "direct", n));
      INFO(to_string(collective) << " on " << n);
      REQUIRE(reading);
      CHECK(!has_place(*reading, plan::Place::kSlot));
    }
  }
}

TEST_CASE("who does the work in a direct broadcast") {
  const auto plan = plan::direct(test::built(Collective::kBroadcast, "direct", 3));
  REQUIRE(plan);
  CHECK(plan::to_text(*plan, Rank{2}) ==
        "rank 2\n lane 0\n  move 0: input(0)[0] -> output[0]\n  signal 0\n");
}

TEST_CASE("multicast puts one slot where n-1 were") {
  for (const int n : {2, 3, 5, 8}) {
    const plan::Plan one_shot = test::built(Collective::kAllReduce, "one_shot", n);
    const auto plan = plan::multicast(one_shot);
    REQUIRE(plan);
    CHECK(plan->name == "one_shot+multicast");
    CHECK(!has_place(*plan, plan::Place::kSlot));
    CHECK(plan->ranks[0].lanes[0].locations.size() ==
          one_shot.ranks[0].lanes[0].locations.size() - static_cast<std::size_t>(n - 2));
  }
  CHECK(!plan::multicast(test::built(Collective::kAllReduce, "ring", 4)));
}

TEST_CASE("multicast gathers the slots of moves that repeat their source") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand broadcast ranks 3 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0]
  move 0: input[0] -> to(1):result
  move 0: input[0] -> to(2):result
rank 1
lane 0
  move 0: from(0):result -> output[0]
rank 2
lane 0
  move 0: from(0):result -> output[0]
)");
  const auto lowered = plan::multicast(plan);
  REQUIRE(lowered);
  CHECK(plan::to_text(*lowered, Rank{0}) ==
        "rank 0\n lane 0\n  move 0: input[0] -> output[0], multicast:result\n");
  check_computes(*lowered, 1);
}

TEST_CASE("multicast with slots of different forms stays slots") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand all_reduce ranks 3 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> to(1):contribution, to(2):partial
  move 0: from(2):result -> output[0]
rank 1
lane 0
  move 0: from(0):contribution, input[0] -> to(2):partial
  move 0: from(2):result -> output[0]
rank 2
lane 0
  move 0: from(0):partial -> scratch[0]:partial
  move 0: from(1):partial, input[0] -> output[0], to(0):result, to(1):result
)");
  plan::Plan with_scratch = plan;
  with_scratch.ranks[2].scratch_chunks = 1;
  check_verifies(with_scratch);
  const auto lowered = plan::multicast(with_scratch);
  REQUIRE(lowered);  // Rank 2's results.
  CHECK(plan::to_text(*lowered, Rank{0}).find("multicast:") == std::string::npos);
  CHECK(plan::to_text(*lowered, Rank{2}).find("multicast:result") != std::string::npos);
}

TEST_CASE("replicate gives each lane its share of every piece") {
  const plan::Plan plan = test::read_plan(R"(
plan by_hand all_gather ranks 1 pieces 2 contract deterministic
rank 0 scratch 2
lane 0
  move 0: input[0] -> output[0]
lane 1
  move 1: input[1] -> scratch[1]:result
  move 1: scratch[1]:result -> output[1]
)");
  CHECK(plan::replicate(plan, 1) == plan);
  const plan::Plan replicated = plan::replicate(plan, 2);
  CHECK(
      plan::to_text(replicated) ==
      "plan by_hand+lanes2 all_gather ranks 1 pieces 4 contract deterministic\n"
      "rank 0 scratch 4\n"
      " lane 0\n  move 0: input[0] -> output[0]\n"
      " lane 1\n  move 1: input[1] -> output[1]\n"
      " lane 2\n  move 2: input[2] -> scratch[1]:result\n  move 2: scratch[1]:result -> output[2]\n"
      " lane 3\n  move 3: input[3] -> scratch[3]:result\n  move 3: scratch[3]:result -> "
      "output[3]\n");
  check_verifies(replicated);
}
