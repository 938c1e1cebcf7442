// Every registered algorithm, at every small rank count: its plans verify with the fewest slots
// that a channel can have, keep the contract that they claim, and cost what docs/algorithms.md
// says. A new algorithm is covered as soon as it is registered.
#include "algorithms/algorithm.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "algorithms/double_tree.h"
#include "algorithms/ranks.h"
#include "plan/verify.h"
#include "support/catch.h"

namespace tutti {
namespace {

using namespace std::string_view_literals;
using plan::Place;
using plan::Plan;
using plan::Shape;

std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return std::string(to_string(shape.collective)) + " " + std::string(algorithm.name) + ", " +
         std::to_string(shape.rank_count) + " ranks, root " + std::to_string(shape.root) +
         ", groups of " + std::to_string(shape.group_size);
}

// Empty if all is well. Checks the plan itself, and that its claim is not too modest: a relaxed
// plan is never chosen by default, so one that happens to be deterministic would go to waste.
std::string complaint(const Algorithm& algorithm, const Shape& shape) {
  Plan plan = build(algorithm, shape);
  for (const std::uint32_t slots : {1u, 2u}) {
    const Status status = plan::verify(plan, {.slots = slots});
    if (!status) return status.error().what;
  }
  if (plan.contract == Contract::kRelaxed) {
    plan.contract = Contract::kDeterministic;
    if (plan::verify(plan)) return "is deterministic, but claims the relaxed contract";
  }
  return {};
}

std::set<int> roots(const Algorithm& algorithm, int n) {
  if (!has_root(algorithm.collective)) return {0};
  return {0, std::min(1, n - 1), n / 2, n - 1};
}

TEST_CASE("every algorithm's plans verify, and keep the contract that they claim") {
  for (const Algorithm* algorithm : algorithms()) {
    int plans = 0;
    for (int n = 1; n <= 33; ++n) {
      for (const int root : roots(*algorithm, n)) {
        for (const int group_size : {1, 2, 3, 4, 8}) {
          const Shape shape{algorithm->collective, n, root, group_size};
          if (!algorithm->applies(shape)) continue;
          ++plans;
          INFO(describe(*algorithm, shape));
          REQUIRE(complaint(*algorithm, shape) == "");
        }
      }
    }
    INFO(algorithm->name);
    REQUIRE(plans > 0);
  }
}

TEST_CASE("every algorithm's plans verify at random larger shapes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937 random(seed);
  const auto up_to = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (const Algorithm* algorithm : algorithms()) {
    for (int round = 0; round < 8; ++round) {
      const int n = up_to(34, 100);
      const int root = has_root(algorithm->collective) ? up_to(0, n - 1) : 0;
      const Shape shape{algorithm->collective, n, root, up_to(1, n)};
      if (!algorithm->applies(shape)) continue;
      INFO(describe(*algorithm, shape));
      REQUIRE(complaint(*algorithm, shape) == "");
    }
  }
}

TEST_CASE("algorithms have names of their own") {
  std::set<std::pair<Collective, std::string_view>> names;
  for (const Algorithm* algorithm : algorithms()) {
    INFO(algorithm->name);
    REQUIRE(!algorithm->name.empty());
    REQUIRE(algorithm->name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") ==
            std::string_view::npos);
    REQUIRE(names.insert({algorithm->collective, algorithm->name}).second);
    REQUIRE(find_algorithm(algorithm->collective, algorithm->name) == algorithm);
  }
  REQUIRE(find_algorithm(Collective::kBroadcast, "one_shot") == nullptr);
  REQUIRE(find_algorithm(Collective::kAllReduce, "") == nullptr);
}

// What a plan costs, counted in the plan itself.
struct Cost {
  int rounds = 0;      // Messages in the longest chain in which each needs the one before.
  int total = 0;       // Slots sent, of one chunk each.
  int busiest = 0;     // Sent by the rank that sends most.
  int fewest = 0;      // Sent by the rank that sends least.
  int neighbours = 0;  // Ranks that the rank with most of them exchanges messages with.
  int crossing = 0;    // Slots from one group to another.
};

// Runs a plan on depths: a value from a slot is one message deeper than it was at the sender.
class Depths {
 public:
  explicit Depths(const Plan& plan) : plan_(plan), sent_(plan.ranks.size()) {}

  Cost run() {
    std::map<std::pair<int, int>, std::size_t> at;  // The next step of [rank, lane].
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < plan_.shape.rank_count; ++rank) {
        const auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
          std::size_t& step = at[{rank, static_cast<int>(lane)}];
          for (; step < lanes[lane].steps.size(); ++step, moved = true) {
            if (!execute(rank, static_cast<int>(lane), lanes[lane], lanes[lane].steps[step])) break;
          }
        }
      }
    }
    cost_.busiest = *std::max_element(sent_.begin(), sent_.end());
    cost_.fewest = *std::min_element(sent_.begin(), sent_.end());
    for (const int sent : sent_) cost_.total += sent;
    std::vector<std::set<int>> neighbours(sent_.size());
    for (const auto& [ends, channel] : channels_) {
      const auto [from, to, lane] = ends;
      neighbours[static_cast<std::size_t>(from)].insert(to);
      neighbours[static_cast<std::size_t>(to)].insert(from);
    }
    for (const auto& of_rank : neighbours)
      cost_.neighbours = std::max(cost_.neighbours, static_cast<int>(of_rank.size()));
    return cost_;
  }

 private:
  bool execute(int rank, int lane, const plan::Lane& steps, const plan::Step& step) {
    const std::span locations(steps.locations.data() + step.first,
                              std::size_t{step.source_count} + step.target_count);
    const auto sources = locations.first(step.source_count);
    for (const auto& at : sources) {
      if (at.place == Place::kSlot && channels_[{at.peer, rank, lane}].empty()) return false;
    }
    int depth = 0;
    for (const auto& at : sources) {
      if (at.place != Place::kSlot) {
        depth = std::max(depth, memory_[{rank, at.place, at.chunk}]);
        continue;
      }
      auto& channel = channels_[{at.peer, rank, lane}];
      depth = std::max(depth, channel.front());
      channel.pop_front();
    }
    for (const auto& at : locations.subspan(step.source_count)) {
      if (at.place != Place::kSlot) {
        memory_[{rank, at.place, at.chunk}] = depth;
        continue;
      }
      channels_[{rank, at.peer, lane}].push_back(depth + 1);
      cost_.rounds = std::max(cost_.rounds, depth + 1);
      ++sent_[static_cast<std::size_t>(rank)];
      const int size = plan_.shape.group_size;
      if (rank / size != at.peer / size) ++cost_.crossing;
    }
    return true;
  }

  const Plan& plan_;
  Cost cost_;
  std::vector<int> sent_;
  std::map<std::tuple<int, int, int>, std::deque<int>> channels_;  // [from, to, lane]
  std::map<std::tuple<int, Place, std::uint32_t>, int> memory_;
};

// The table of docs/algorithms.md. `rounds` holds for every n, and is reached if n is a power of
// two; `busiest`, in chunks, holds if n is a power of two, for two_level if n is a multiple of the
// group size. For other n the busiest rank sends up to `excess` chunks more.
struct Claim {
  Collective collective;
  std::string_view name;
  int (*rounds)(int n, int groups);
  int (*busiest)(int n, int groups);
  int (*excess)(int n);
};

int none(int) { return 0; }
int one(int n, int) { return std::min(1, n - 1); }
int others(int n, int) { return n - 1; }
int twice_others(int n, int) { return 2 * (n - 1); }
int levels(int n, int) { return level_count(n); }
int twice_levels(int n, int) { return 2 * level_count(n); }
int level_excess(int n) { return level_count(n); }

constexpr Claim kClaims[] = {
    {Collective::kAllReduce, "one_shot", one, others, none},
    {Collective::kAllReduce, "two_shot", [](int n, int) { return std::min(2, 2 * (n - 1)); },
     twice_others, none},
    {Collective::kAllReduce, "doubling", levels, levels,
     [](int n) { return std::max(0, n - 1 - level_count(n)); }},
    {Collective::kAllReduce, "halving_doubling", twice_levels, twice_others, level_excess},
    {Collective::kAllReduce, "binomial", twice_levels, levels, none},
    {Collective::kAllReduce, "double_tree", twice_levels,
     [](int n, int) { return std::min(4, 2 * (n - 1)); }, none},
    {Collective::kAllReduce, "ring", twice_others, twice_others, none},
    {Collective::kAllReduce, "two_level", [](int, int) { return 4; }, twice_others,
     [](int n) { return n; }},
    {Collective::kReduceScatter, "direct", one, others, none},
    {Collective::kReduceScatter, "halving", levels, others, none},
    {Collective::kReduceScatter, "ring", others, others, none},
    {Collective::kReduceScatter, "two_level", [](int, int) { return 2; }, others,
     [](int n) { return n; }},
    {Collective::kAllGather, "direct", one, others, none},
    {Collective::kAllGather, "doubling", levels, others, level_excess},
    {Collective::kAllGather, "ring", others, others, none},
    {Collective::kAllGather, "two_level", [](int, int) { return 2; }, others,
     [](int n) { return n; }},
    {Collective::kBroadcast, "direct", one, others, none},
    {Collective::kBroadcast, "two_shot", [](int n, int) { return std::min(2, n - 1); }, others,
     none},
    {Collective::kBroadcast, "binomial", levels, levels, none},
    {Collective::kBroadcast, "scatter_all_gather",
     [](int n, int) { return std::max(0, 2 * level_count(n) - 1); }, twice_others, level_excess},
    {Collective::kBroadcast, "double_tree", levels,
     [](int n, int) { return std::min(2, 2 * (n - 1)); }, none},
    {Collective::kBroadcast, "ring", others, [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kReduce, "direct", one, one, none},
    {Collective::kReduce, "two_shot", [](int n, int) { return std::min(2, 2 * (n - 1)); },
     [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kReduce, "binomial", levels, one, none},
    {Collective::kGather, "direct", one, one, none},
    {Collective::kScatter, "direct", one, others, none},
    {Collective::kAllToAll, "direct", one, others, none},
    {Collective::kBroadcast, "two_level", [](int, int groups) { return 2 + level_count(groups); },
     [](int n, int groups) { return 2 * (n / groups - 1) + level_count(groups); },
     [](int n) { return n; }},
};

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

TEST_CASE("algorithms take the rounds and send the bytes that they claim") {
  for (const Claim& claim : kClaims) {
    const Algorithm* algorithm = find_algorithm(claim.collective, claim.name);
    INFO(to_string(claim.collective) << " " << claim.name);
    REQUIRE(algorithm != nullptr);
    for (int n = 1; n <= 33; ++n) {
      const Shape shape{claim.collective, n, n / 3, 4};
      if (!algorithm->applies(shape)) continue;
      const int groups = (n + 3) / 4;
      const Cost cost = Depths(build(*algorithm, shape)).run();
      INFO(n << " ranks");
      CHECK(cost.rounds <= claim.rounds(n, groups));
      CHECK(cost.busiest <= claim.busiest(n, groups) + claim.excess(n));
      if (is_power_of_two(n)) CHECK(cost.rounds == claim.rounds(n, groups));
      if (is_power_of_two(n) || (claim.name == "two_level" && n % 4 == 0))
        CHECK(cost.busiest == claim.busiest(n, groups));
    }
  }
}

// In units of one chunk per slot, the least that has to travel: each chunk of a sum takes n-1
// messages to come together, and each chunk of an output one to each rank that does not have it.
int fewest_messages(const Plan& plan) {
  const int others = plan.shape.rank_count - 1;
  const CollectiveTraits traits = traits_of(plan.shape.collective);
  const auto chunks = static_cast<int>(plan.pieces);
  // An all-to-all has a block for each pair; a rooted one leaves the root, or comes to it.
  const int blocks =
      traits.input_each || traits.output_each
          ? (has_root(plan.shape.collective) ? others : plan.shape.rank_count * others)
          : others;
  return (plan.shape.collective == Collective::kAllReduce ? 2 : 1) * blocks * chunks;
}

TEST_CASE("no algorithm sends more than needed, but those that buy rounds or arithmetic with it") {
  for (const Algorithm* algorithm : algorithms()) {
    const std::pair buys{algorithm->collective, algorithm->name};
    const bool buys_something = buys == std::pair{Collective::kAllReduce, "one_shot"sv} ||
                                buys == std::pair{Collective::kAllReduce, "doubling"sv} ||
                                buys == std::pair{Collective::kReduce, "two_shot"sv};
    for (int n = 1; n <= 33; ++n) {
      for (const int group_size : {1, 3, 4}) {
        const Shape shape{algorithm->collective, n, n / 3, group_size};
        if (!algorithm->applies(shape)) continue;
        INFO(describe(*algorithm, shape));
        const Plan plan = build(*algorithm, shape);
        const int total = Depths(plan).run().total;
        if (buys_something)
          CHECK(total >= fewest_messages(plan));
        else
          CHECK(total == fewest_messages(plan));
        for (const auto& rank : plan.ranks) CHECK(rank.scratch_chunks <= 1);
      }
    }
  }
}

TEST_CASE("algorithms that claim the bandwidth optimum spread it evenly") {
  const std::pair<Collective, std::string_view> even[] = {
      {Collective::kAllReduce, "two_shot"},    {Collective::kAllReduce, "ring"},
      {Collective::kReduceScatter, "direct"},  {Collective::kReduceScatter, "ring"},
      {Collective::kReduceScatter, "halving"}, {Collective::kAllGather, "direct"},
      {Collective::kAllGather, "ring"}};
  for (const auto& [collective, name] : even) {
    for (int n = 1; n <= 33; ++n) {
      INFO(to_string(collective) << " " << name << ", " << n << " ranks");
      const Cost cost = Depths(build(*find_algorithm(collective, name), {collective, n})).run();
      const int chunks = collective == Collective::kAllReduce ? 2 * (n - 1) : n - 1;
      CHECK(cost.busiest == chunks);
      CHECK(cost.fewest == chunks);
    }
  }
}

TEST_CASE("algorithms with few neighbours have no more") {
  struct Few {
    Collective collective;
    std::string_view name;
    int (*neighbours)(int n, int groups);
    bool for_powers_of_two;
  };
  const auto two = [](int n, int) { return std::min(2, n - 1); };
  const auto four = [](int n, int) { return std::min(4, n - 1); };
  const Few few[] = {{Collective::kAllReduce, "ring", two, false},
                     {Collective::kReduceScatter, "ring", two, false},
                     {Collective::kAllGather, "ring", two, false},
                     {Collective::kBroadcast, "ring", two, false},
                     {Collective::kAllReduce, "double_tree", four, false},
                     {Collective::kAllReduce, "binomial", levels, false},
                     {Collective::kAllReduce, "doubling", levels, true},
                     {Collective::kAllReduce, "halving_doubling", levels, true},
                     {Collective::kReduceScatter, "halving", levels, true},
                     {Collective::kAllGather, "doubling", levels, true},
                     {Collective::kBroadcast, "binomial", levels, false},
                     {Collective::kBroadcast, "scatter_all_gather", levels, true}};
  for (const Few& claim : few) {
    for (int n = 1; n <= 64; ++n) {
      if (claim.for_powers_of_two && !is_power_of_two(n)) continue;
      INFO(to_string(claim.collective) << " " << claim.name << ", " << n << " ranks");
      const Algorithm* algorithm = find_algorithm(claim.collective, claim.name);
      CHECK(Depths(build(*algorithm, {claim.collective, n})).run().neighbours <=
            claim.neighbours(n, 1));
    }
  }
}

TEST_CASE("in two-level plans a chunk crosses between groups once each way") {
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name != "two_level") continue;
    for (int n = 3; n <= 33; ++n) {
      for (int group_size = 2; group_size < n; ++group_size) {
        const Shape shape{algorithm->collective, n, n / 3, group_size};
        INFO(describe(*algorithm, shape));
        const int ways = algorithm->collective == Collective::kAllReduce ? 2 : 1;
        const int chunks = algorithm->collective == Collective::kBroadcast ? group_size : n;
        const int other_groups = (n - 1) / group_size;
        CHECK(Depths(build(*algorithm, shape)).run().crossing == ways * chunks * other_groups);
      }
    }
  }
}

TEST_CASE("in double trees nobody but the root has children twice") {
  for (int n = 1; n <= 100; ++n) {
    INFO(n << " ranks");
    for (int rank = 0; rank < n; ++rank) {
      const BinaryTree trees[] = {double_tree(rank, 0, n), double_tree(rank, 1, n)};
      if (rank > 0) CHECK((trees[0].children.empty() || trees[1].children.empty()));
      for (const BinaryTree& tree : trees) CHECK(tree.children.size() <= 2);
    }
  }
}

}  // namespace
}  // namespace tutti
