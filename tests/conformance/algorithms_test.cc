// Every registered algorithm, at every small rank count: its plans verify with the fewest slots
// that a channel can have, keep the contract that they claim, and cost what docs/algorithms.md
// says. A new algorithm is covered as soon as it is registered.
#include "algorithms/algorithm.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "algorithms/ranks.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/plan_cost.h"
#include "support/sample.h"
#include "support/trees.h"

namespace tutti {
namespace {

using namespace std::string_view_literals;
using plan::Plan;
using plan::Shape;
using test::Cost;
using test::cost_of;
using test::kSanitized;
using test::Sample;

std::string numbers(const std::vector<int>& list) {
  std::string text;
  for (const int number : list) text += std::to_string(number) + " ";
  return text;
}

std::string describe(const Algorithm& algorithm, const Shape& shape) {
  return std::string(to_string(shape.collective)) + " " + std::string(algorithm.name) + ", " +
         std::to_string(shape.rank_count) + " ranks, root " + std::to_string(shape.root) +
         ", groups of " + numbers(shape.groups.sizes) + "weights " + numbers(shape.weights) + ", " +
         std::to_string(shape.trees.size()) + " trees";
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

// All that a shape may say of n ranks.
std::vector<Shape> shapes(Collective collective, int n, int root) {
  std::vector<Shape> all;
  const plan::GroupSizes groups[] = {1, 2, 3, 4, 8, {2, 4}, {2, 6}, {3, 6}, {3, 9}, {2, 4, 8}};
  for (const auto& sizes : groups) all.push_back({collective, n, root, sizes});
  for (const int period : {1, 2, 5}) {  // Equal weights; 0, 1, 0, 1, ...; 0, 1, 2, 3, 4, 0, ...
    auto& weights = all.emplace_back(Shape{collective, n, root}).weights;
    for (int rank = 0; rank < n; ++rank) weights.push_back(period == 1 ? 3 : rank % period);
  }
  all.emplace_back(Shape{collective, n, root}).trees = {test::star(n, root)};
  all.emplace_back(Shape{collective, n, root}).trees = {test::chain(n, root), test::star(n, root)};
  all.emplace_back(Shape{collective, n, root}).trees = test::some_trees(collective, n, root, 3);
  return all;
}

TEST_CASE("every algorithm's plans verify, and keep the contract that they claim") {
  std::mt19937 random(Catch::rngSeed());
  for (const Algorithm* algorithm : algorithms()) {
    int plans = 0;
    Sample sample;
    for (int n = 1; n <= 33; ++n) {
      for (const int root : roots(*algorithm, n)) {
        for (const Shape& shape : shapes(algorithm->collective, n, root)) {
          if (!algorithm->applies(shape)) continue;
          sample.add("", [&plans, algorithm, shape] {
            ++plans;
            INFO(describe(*algorithm, shape));
            REQUIRE(complaint(*algorithm, shape) == "");
          });
        }
      }
    }
    sample.run(random);
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
    for (int round = 0; round < (kSanitized ? 2 : 8); ++round) {
      const int n = up_to(34, 100);
      const int root = has_root(algorithm->collective) ? up_to(0, n - 1) : 0;
      Shape shape{algorithm->collective, n, root, up_to(1, n)};
      if (round % 2 == 1) {  // Nested groups are full.
        const int inner = up_to(2, 4), outer = inner * up_to(2, 4);
        shape = {algorithm->collective, outer * up_to(2, 5), 0, {inner, outer}};
      }
      for (int rank = 0; rank < shape.rank_count; ++rank) shape.weights.push_back(up_to(0, 3));
      for (int tree = up_to(0, 4); tree > 0; --tree) {
        const int other =
            has_root(algorithm->collective) ? shape.root : up_to(0, shape.rank_count - 1);
        shape.trees.push_back(test::random_tree(random, shape.rank_count, other));
      }
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

// The table of docs/algorithms.md. `rounds` holds for every n, and is reached if n is a power of
// two; `busiest`, in chunks, holds if n is a power of two, for hierarchical if n is a multiple of
// the group size. For other n the busiest rank sends up to `excess` chunks more.
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
int half(int n, int) { return n / 2; }
int twice_others(int n, int) { return 2 * (n - 1); }
int levels(int n, int) { return level_count(n); }
int twice_levels(int n, int) { return 2 * level_count(n); }
int level_excess(int n) { return level_count(n); }

// Of n - 1 with base 4, and the children that rank 0 has in a tree of radix 4.
int digits(int n) { return (level_count(n) + 1) / 2; }
int most_children(int n, int) { return 3 * (level_count(n) / 2) + level_count(n) % 2; }

int twice_over_groups(int n, int groups) {
  const int to_my_group = n - groups;        // What is for other places than mine.
  const int along_my_rail = n - n / groups;  // What is for my place in other groups.
  return to_my_group + along_my_rail;
}

constexpr Claim kClaims[] = {
    {Collective::kAllReduce, "one_shot", one, others, none},
    {Collective::kAllReduce, "two_shot", [](int n, int) { return std::min(2, 2 * (n - 1)); },
     twice_others, none},
    {Collective::kAllReduce, "doubling", levels, levels,
     [](int n) { return std::max(0, n - 1 - level_count(n)); }},
    {Collective::kAllReduce, "halving_doubling", twice_levels, twice_others, level_excess},
    {Collective::kAllReduce, "binomial", twice_levels, levels, none},
    {Collective::kAllReduce, "knomial", [](int n, int) { return 2 * digits(n); }, most_children,
     none},
    {Collective::kAllReduce, "double_tree", twice_levels,
     // Of 4 parts for each tree.
     [](int n, int) { return 4 * std::min(4, 2 * (n - 1)); }, none},
    {Collective::kAllReduce, "ring", twice_others, twice_others, none},
    {Collective::kAllReduce, "hierarchical", [](int, int) { return 4; }, twice_others,
     [](int n) { return n; }},
    {Collective::kAllReduce, "weighted", [](int n, int) { return std::min(2, 2 * (n - 1)); },
     // Of four times as many pieces as ranks.
     [](int n, int) { return 8 * (n - 1); }, none},
    {Collective::kAllReduce, "circulant", twice_levels, twice_others, none},
    {Collective::kAllReduce, "pat", twice_levels, twice_others, level_excess},
    {Collective::kReduceScatter, "direct", one, others, none},
    {Collective::kReduceScatter, "halving", levels, others, none},
    {Collective::kReduceScatter, "ring", others, others, none},
    {Collective::kReduceScatter, "hierarchical", [](int, int) { return 2; }, others,
     [](int n) { return n; }},
    {Collective::kReduceScatter, "circulant", levels, others, none},
    {Collective::kReduceScatter, "pat", levels, others, none},
    {Collective::kAllGather, "direct", one, others, none},
    {Collective::kAllGather, "doubling", levels, others, level_excess},
    {Collective::kAllGather, "ring", others, others, none},
    {Collective::kAllGather, "hierarchical", [](int, int) { return 2; }, others,
     [](int n) { return n; }},
    {Collective::kAllGather, "circulant", levels, others, none},
    {Collective::kAllGather, "pat", levels, others, level_excess},
    {Collective::kBroadcast, "direct", one, others, none},
    {Collective::kBroadcast, "two_shot", [](int n, int) { return std::min(2, n - 1); }, others,
     none},
    {Collective::kBroadcast, "binomial", levels, levels, none},
    {Collective::kBroadcast, "knomial", [](int n, int) { return digits(n); }, most_children, none},
    {Collective::kBroadcast, "scatter_all_gather",
     [](int n, int) { return std::max(0, 2 * level_count(n) - 1); }, twice_others, level_excess},
    {Collective::kBroadcast, "double_tree", levels,
     [](int n, int) { return std::min(2, 2 * (n - 1)); }, none},
    {Collective::kBroadcast, "ring", others, [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kBroadcast, "hierarchical",
     [](int, int groups) { return 2 + level_count(groups); },
     [](int n, int groups) { return 2 * (n / groups - 1) + level_count(groups); },
     [](int n) { return n; }},
};

constexpr Claim kMoreClaims[] = {
    {Collective::kReduce, "direct", one, one, none},
    {Collective::kReduce, "two_shot", [](int n, int) { return std::min(2, 2 * (n - 1)); },
     [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kReduce, "binomial", levels, one, none},
    {Collective::kReduce, "halving", [](int n, int) { return n == 1 ? 0 : level_count(n) + 1; },
     [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kReduce, "double_tree", levels, [](int n, int) { return n == 1 ? 0 : 2; }, none},
    {Collective::kReduce, "ring", others, [](int n, int) { return n == 1 ? 0 : n; }, none},
    {Collective::kReduce, "hierarchical", [](int, int) { return 3; }, [](int n, int) { return n; },
     [](int n) { return n; }},
    {Collective::kGather, "direct", one, one, none},
    {Collective::kGather, "binomial", levels, half, none},
    {Collective::kGather, "hierarchical", [](int, int) { return 2; },
     [](int n, int groups) { return n / groups; }, [](int n) { return n; }},
    {Collective::kScatter, "direct", one, others, none},
    {Collective::kScatter, "binomial", levels, others, none},
    {Collective::kScatter, "hierarchical", [](int, int) { return 2; }, others, none},
    {Collective::kAllToAll, "direct", one, others, none},
    {Collective::kAllToAll, "hierarchical", [](int, int) { return 2; }, twice_over_groups, none},
    {Collective::kAllToAll, "pairwise", one, others, none},
    {Collective::kAllToAll, "bruck", levels, [](int n, int) { return level_count(n) * (n / 2); },
     none},
};

bool is_power_of_two(int n) { return (n & (n - 1)) == 0; }

TEST_CASE("algorithms take the rounds and send the bytes that they claim") {
  std::vector<Claim> claims(std::begin(kClaims), std::end(kClaims));
  claims.insert(claims.end(), std::begin(kMoreClaims), std::end(kMoreClaims));
  for (const Claim& claim : claims) {
    const Algorithm* algorithm = find_algorithm(claim.collective, claim.name);
    INFO(to_string(claim.collective) << " " << claim.name);
    REQUIRE(algorithm != nullptr);
    for (int n = 1; n <= 33; ++n) {
      const Shape shape{claim.collective, n, n / 3, 4, std::vector(static_cast<std::size_t>(n), 1)};
      if (!algorithm->applies(shape)) continue;
      const int groups = (n + 3) / 4;
      const Cost cost = cost_of(build(*algorithm, shape));
      INFO(n << " ranks");
      CHECK(cost.rounds <= claim.rounds(n, groups));
      CHECK(cost.busiest <= claim.busiest(n, groups) + claim.excess(n));
      if (is_power_of_two(n)) CHECK(cost.rounds == claim.rounds(n, groups));
      if (is_power_of_two(n) || (claim.name == "hierarchical" && n % 4 == 0))
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

bool has_blocks_of_its_own(Collective collective) {
  return collective == Collective::kGather || collective == Collective::kScatter ||
         collective == Collective::kAllToAll;
}

// Scratch chunks of a rank, at most.
std::uint32_t scratch(const Algorithm& algorithm, const Shape& shape) {
  const int n = shape.rank_count;
  if (algorithm.name == "hierarchical" && has_blocks_of_its_own(algorithm.collective)) return 0;
  if (algorithm.name == "hierarchical")
    return chunk_of(static_cast<int>(shape.groups.sizes.size()));
  if (algorithm.name == "bruck") return chunk_of(3 * n / 2);
  if (algorithm.name == "circulant") return chunk_of(n / 2);
  if (algorithm.name == "pat") return chunk_of(std::min((n + 1) / 2, 8 * level_count(n)));
  return 1;
}

TEST_CASE("no algorithm sends more than needed, but those that buy something with it") {
  std::mt19937 random(Catch::rngSeed());
  for (const Algorithm* algorithm : algorithms()) {
    const std::pair buys{algorithm->collective, algorithm->name};
    const bool buys_something = buys == std::pair{Collective::kAllReduce, "one_shot"sv} ||
                                buys == std::pair{Collective::kAllReduce, "doubling"sv} ||
                                buys == std::pair{Collective::kReduce, "two_shot"sv} ||
                                buys == std::pair{Collective::kReduce, "halving"sv} ||
                                buys == std::pair{Collective::kReduce, "hierarchical"sv} ||
                                buys == std::pair{Collective::kGather, "binomial"sv} ||
                                buys == std::pair{Collective::kGather, "hierarchical"sv} ||
                                buys == std::pair{Collective::kScatter, "binomial"sv} ||
                                buys == std::pair{Collective::kScatter, "hierarchical"sv} ||
                                buys == std::pair{Collective::kAllToAll, "hierarchical"sv} ||
                                buys == std::pair{Collective::kAllToAll, "bruck"sv};
    Sample sample;
    for (int n = 1; n <= 33; ++n) {
      for (const Shape& shape : shapes(algorithm->collective, n, n / 3)) {
        if (!algorithm->applies(shape)) continue;
        sample.add("", [algorithm, shape, buys_something] {
          INFO(describe(*algorithm, shape));
          const Plan plan = build(*algorithm, shape);
          const int total = cost_of(plan).total;
          if (buys_something)
            CHECK(total >= fewest_messages(plan));
          else
            CHECK(total == fewest_messages(plan));
          for (const auto& rank : plan.ranks)
            CHECK(rank.scratch_chunks <= scratch(*algorithm, shape));
        });
      }
    }
    sample.run(random);
  }
}

TEST_CASE("algorithms that claim the bandwidth optimum spread it evenly") {
  const std::pair<Collective, std::string_view> even[] = {
      {Collective::kAllReduce, "two_shot"},      {Collective::kAllReduce, "ring"},
      {Collective::kReduceScatter, "direct"},    {Collective::kReduceScatter, "ring"},
      {Collective::kReduceScatter, "halving"},   {Collective::kAllGather, "direct"},
      {Collective::kAllGather, "ring"},          {Collective::kAllReduce, "circulant"},
      {Collective::kReduceScatter, "circulant"}, {Collective::kAllGather, "circulant"},
      {Collective::kReduceScatter, "pat"}};
  for (const auto& [collective, name] : even) {
    for (int n = 1; n <= 33; ++n) {
      INFO(to_string(collective) << " " << name << ", " << n << " ranks");
      const Cost cost = cost_of(build(*find_algorithm(collective, name), {collective, n}));
      const int chunks = collective == Collective::kAllReduce ? 2 * (n - 1) : n - 1;
      CHECK(cost.busiest == chunks);
      CHECK(cost.fewest == chunks);
    }
  }
}

// Steps of a lane run in order, so a rank that exchanges several chunks per round may wait more
// often than there are rounds.
TEST_CASE("algorithms that send many chunks in few rounds also wait seldom") {
  struct Chain {
    Collective collective;
    std::string_view name;
    int (*most)(int n);
    bool for_powers_of_two;
  };
  const Chain chains[] = {
      {Collective::kReduceScatter, "circulant", [](int n) { return 2 * level_count(n); }, false},
      {Collective::kAllGather, "circulant", [](int n) { return 2 * level_count(n); }, false},
      {Collective::kAllReduce, "circulant", [](int n) { return 4 * level_count(n); }, false},
      {Collective::kReduceScatter, "pat", [](int n) { return level_count(n) + 1; }, true},
      {Collective::kAllGather, "pat", [](int n) { return level_count(n) + 1; }, true},
      {Collective::kAllReduce, "pat", [](int n) { return 2 * level_count(n) + 2; }, true},
      {Collective::kAllToAll, "pairwise", [](int n) { return n - 1 + n % 2; }, false},
      {Collective::kAllToAll, "bruck", [](int n) { return 2 * level_count(n); }, false}};
  for (const Chain& claim : chains) {
    for (int n = 1; n <= (claim.name == "pat" ? 16 : 100); ++n) {
      const Cost cost =
          cost_of(build(*find_algorithm(claim.collective, claim.name), {claim.collective, n}));
      INFO(to_string(claim.collective) << " " << claim.name << ", " << n << " ranks");
      if (!claim.for_powers_of_two || is_power_of_two(n)) CHECK(cost.chain <= claim.most(n));
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
                     {Collective::kBroadcast, "double_tree", four, false},
                     {Collective::kReduce, "double_tree", four, false},
                     {Collective::kAllReduce, "binomial", levels, false},
                     {Collective::kAllReduce, "doubling", levels, true},
                     {Collective::kAllReduce, "halving_doubling", levels, true},
                     {Collective::kReduceScatter, "halving", levels, true},
                     {Collective::kAllGather, "doubling", levels, true},
                     {Collective::kBroadcast, "binomial", levels, false},
                     {Collective::kGather, "binomial", levels, false},
                     {Collective::kScatter, "binomial", levels, false},
                     {Collective::kAllToAll, "bruck",
                      [](int n, int) { return std::min(n - 1, 2 * level_count(n)); }, false},
                     {Collective::kBroadcast, "scatter_all_gather", levels, true}};
  for (const Few& claim : few) {
    for (int n = 1; n <= 64; ++n) {
      if (claim.for_powers_of_two && !is_power_of_two(n)) continue;
      INFO(to_string(claim.collective) << " " << claim.name << ", " << n << " ranks");
      const Algorithm* algorithm = find_algorithm(claim.collective, claim.name);
      CHECK(cost_of(build(*algorithm, {claim.collective, n})).neighbours <= claim.neighbours(n, 1));
    }
  }
}

// Blocks that one rank has for another one outside its outermost group.
int blocks_across(const Shape& shape) {
  const int n = shape.rank_count, size = shape.groups.sizes.back();
  int blocks = 0;
  for (int one = 0; one < n; ++one) {
    if (has_root(shape.collective) && one != shape.root) continue;
    for (int other = 0; other < n; ++other) blocks += one / size != other / size ? 1 : 0;
  }
  return blocks;
}

TEST_CASE("in hierarchical plans a chunk enters each group of any level once each way") {
  const plan::GroupSizes groups[] = {2,  3,      4,      5,      7,       8,        11,
                                     16, {2, 4}, {2, 8}, {3, 6}, {4, 12}, {2, 4, 8}};
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name != "hierarchical") continue;
    for (int n = 3; n <= 33; ++n) {
      for (const plan::GroupSizes& sizes : groups) {
        const Shape shape{algorithm->collective, n, n / 3, sizes};
        if (!algorithm->applies(shape)) continue;
        INFO(describe(*algorithm, shape));
        const int ways = algorithm->collective == Collective::kAllReduce ? 2 : 1;
        const int chunks =
            algorithm->collective == Collective::kBroadcast ? sizes.sizes.front() : n;
        const Cost cost = cost_of(build(*algorithm, shape));
        REQUIRE(cost.crossing.size() == sizes.sizes.size());
        if (has_blocks_of_its_own(algorithm->collective)) {
          CHECK(cost.crossing.back() == blocks_across(shape));
          CHECK(cost.rounds <= static_cast<int>(sizes.sizes.size() + 1));
          continue;
        }
        const bool collects = algorithm->collective == Collective::kReduce;
        for (std::size_t level = 0; level < sizes.sizes.size(); ++level) {
          const int size = sizes.sizes[level], other_groups = (n - 1) / size;
          const int beside_root = std::min(size, n - shape.root / size * size);
          const int collected = collects ? n - beside_root : 0;  // From their owners to the root.
          CHECK(cost.crossing[level] == ways * chunks * other_groups + collected);
        }
        if (algorithm->collective != Collective::kBroadcast)
          CHECK(cost.rounds <=
                ways * static_cast<int>(sizes.sizes.size() + 1) + (collects ? 1 : 0));
      }
    }
  }
}

}  // namespace
}  // namespace tutti
