// One that is simulated for all that are alike: bit for bit what simulating all of them gives, for
// every algorithm, on machines of any kind.
#include <array>
#include <random>
#include <string>

#include "plan/estimate/estimate.h"
#include "plan/passes/passes.h"
#include "planner/simulate/symmetry.h"
#include "support/catch.h"
#include "support/plans.h"
#include "support/sample.h"

using namespace tutti;
using test::Sample;

namespace {

std::uint32_t one_of(std::mt19937& random, std::initializer_list<std::uint32_t> list) {
  return *(list.begin() + random() % list.size());
}

// Hosts of ranks; each rank has a port out and in, those of a host share its way to the network,
// and hosts share the switches there, which are several side by side.
struct Machine {
  std::uint32_t host = 1, leaf = 1, spines = 1;
  double near_us = 0, far_us = 0;
  bool own_rates = false;
  plan::CostModel model;

  Machine(std::mt19937& random, int ranks)
      : host(one_of(random, {1, 2, 4})),
        leaf(host * one_of(random, {1, 2, 4})),
        spines(one_of(random, {1, 3})),
        near_us(0.1 * one_of(random, {0, 5})),
        far_us(near_us + one_of(random, {0, 3})),
        own_rates(random() % 4 == 0) {
    const auto n = static_cast<std::uint32_t>(ranks);
    const bool joins = random() % 3 == 0;
    add(n, one_of(random, {10, 40}), joins ? plan::Resource::Joins::kMulticast : kNothing, n);
    add(n, one_of(random, {10, 40}), joins ? plan::Resource::Joins::kReduce : kNothing, -ranks);
    add(2 * hosts(n), one_of(random, {7, 20}), kNothing, 0);
    for (plan::Resource& way : std::span(model.resources).subspan(2 * n))
      way.message_us = 0.1 * one_of(random, {0, 1});
    add(2 * spines * leaves(n), one_of(random, {5, 50}), kNothing, 0);
    const auto memories = static_cast<std::uint32_t>(model.resources.size());
    add(n, 30, kNothing, 0);
    if (random() % 3 == 0) model.resources[random() % memories].gigabytes_per_second *= 0.5;
    model.step_us = 0.02;
    if (random() % 2 == 0) {  // Lanes take phases of steps.
      model.lane_us = one_of(random, {1, 13}) * 0.1;
      model.lane_gigabytes_per_second = one_of(random, {0, 9});
      model.sees_slots = random() % 2 == 0;
    }
    if (random() % 2 == 0) model.compute = [=](Rank at) { return plan::Use{memories + to(at), 1}; };
    model.link = [this, n](Rank from, Rank into) { return path(n, to(from), to(into)); };
    if (random() % 2 == 0) turn(n);
    model.most_lanes = one_of(random, {1, 2});
  }
  Machine(const Machine&) = delete;

 private:
  static constexpr auto kNothing = plan::Resource::Joins::kNothing;
  static std::uint32_t to(Rank rank) { return static_cast<std::uint32_t>(rank.value); }
  std::uint32_t hosts(std::uint32_t n) const { return (n + host - 1) / host; }
  std::uint32_t leaves(std::uint32_t n) const { return (n + leaf - 1) / leaf; }

  void add(std::uint32_t count, double rate, plan::Resource::Joins joins, std::int64_t mirror) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::int64_t>(model.resources.size());
      model.resources.push_back({.gigabytes_per_second = rate,
                                 .joins = joins,
                                 .mirror = static_cast<std::uint32_t>(at + mirror),
                                 .join_efficiency = 0.8});
    }
  }
  plan::Path path(std::uint32_t n, std::uint32_t a, std::uint32_t b) const {
    plan::Path path(LinkCost{near_us, own_rates ? 25.0 : 0.0}, {{a, 1.0}});
    if (a / host != b / host) {
      path.own.latency_us = far_us;
      path.uses.push_back({2 * n + 2 * (a / host), 1});
      const std::uint32_t first = 2 * n + 2 * hosts(n);
      for (std::uint32_t i = 0; i < spines && a / leaf != b / leaf; ++i) {
        path.uses.push_back({first + (a / leaf * spines + i) * 2, 1.0 / spines});
        path.uses.push_back({first + (b / leaf * spines + i) * 2 + 1, 1.0 / spines});
      }
      path.uses.push_back({2 * n + 2 * (b / host) + 1, 1});
    }
    path.uses.push_back({n + b, 1});
    return path;
  }
  // Rank orders that are rotations within hosts, and one that is none.
  void turn(std::uint32_t n) {
    for (std::uint32_t by = 0; by < host; ++by) {
      auto& order = model.orders.emplace_back();
      for (std::uint32_t i = 0; i < n; ++i) {
        const std::uint32_t first = i / host * host, size = std::min(host, n - first);
        order.push_back(Rank{static_cast<std::int32_t>(first + (i - first + by) % size)});
      }
    }
    model.orders.emplace_back(model.orders[0].rbegin(), model.orders[0].rend());
  }
};

void check_same(const plan::Estimate& a, const plan::Estimate& b) {
  CHECK(a.microseconds == b.microseconds);
  CHECK(a.messages_on_critical_path == b.messages_on_critical_path);
  CHECK(a.latency_us == b.latency_us);
  CHECK(a.bytes_on_busiest_link == b.bytes_on_busiest_link);
  CHECK(a.busy_us == b.busy_us);
}

std::string name_of(const Algorithm& algorithm) {
  return std::string(to_string(algorithm.collective)) + " " + std::string(algorithm.name);
}

struct Setting {
  DataType type = DataType::kFloat32;
  std::size_t slot_bytes = 0;
  explicit Setting(std::mt19937& random)
      : type(random() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16),
        slot_bytes(one_of(random, {256, 4096})) {}
};

}  // namespace

TEST_CASE("one of each class gives the time of all, bit for bit") {
  std::mt19937 random(Catch::rngSeed());
  int fewer = 0;
  const auto compare = [&](const plan::Plan& built) {
    const auto lowered = random() % 8 == 0 ? plan::direct(built) : std::nullopt;
    const plan::Plan plan = lowered ? *lowered : plan::fuse(built, 8);
    const Setting with(random);
    Machine machine(random, plan.shape.rank_count);
    plan::CostModel whole = machine.model;
    whole.may_be_alike = false;
    plan::Estimator some(plan, machine.model, with.type, with.slot_bytes, 8);
    plan::Estimator all(plan, whole, with.type, with.slot_bytes, 8);
    REQUIRE(some.lanes() == all.lanes());
    const std::size_t even = 64 * plan.pieces * some.lanes();
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{random() % 5000}, even, 500 * even}) {
      INFO(plan.name << " for " << to_string(plan.shape.collective) << " on "
                     << plan.shape.rank_count << " from " << plan.shape.root << ", " << count
                     << " elements, hosts of " << machine.host << ", seed " << Catch::rngSeed());
      const plan::Estimate a = some.run(count), b = all.run(count);
      check_same(a, b);
      if (a.simulated_ranks < b.simulated_ranks) ++fewer;
    }
  };
  // Where few plans are sampled, more often.
  for (int round = 0; round < (test::kSanitized ? 3 : 2); ++round) {
    Sample sample;
    test::for_each_plan({2, 3, 4, 8, 13, 16}, [&](const plan::Plan& plan) {
      sample.add(std::string(to_string(plan.shape.collective)) + " " + plan.name,
                 [&compare, plan] { compare(plan); });
    });
    sample.run(random);
  }
  CHECK(fewer > (test::kSanitized ? 20 : 200));
}

TEST_CASE("a few ranks that are listed give the time of all, bit for bit") {
  std::mt19937 random(Catch::rngSeed());
  int listed = 0;
  Sample sample;
  for (const Algorithm* algorithm : algorithms()) {
    for (const int ranks : {2, 4, 6, 12, 16, 24}) {
      for (const int group : {1, 2, 4}) {
        const plan::Shape shape{algorithm->collective, ranks, 0, group};
        if (!algorithm->applies(shape) || !planner::first_ranks(*algorithm, shape)) continue;
        sample.add(name_of(*algorithm), [&random, &listed, algorithm, shape, ranks, group] {
          const auto few = planner::first_ranks(*algorithm, shape);
          ++listed;
          const Setting with(random);
          Machine machine(random, ranks);
          const plan::Plan whole = plan::fuse(build(*algorithm, shape), 8);
          plan::CostModel plain = machine.model;
          plain.may_be_alike = false;
          plan::Estimator some(*few, machine.model, with.type, with.slot_bytes, 8);
          plan::Estimator all(whole, plain, with.type, with.slot_bytes, 8);
          REQUIRE(some.lanes() == all.lanes());
          const std::size_t even = 64 * whole.pieces * some.lanes();
          for (const std::size_t count : {even, 500 * even}) {
            INFO(algorithm->name << " for " << to_string(shape.collective) << " on " << ranks
                                 << " in groups of " << group << ", " << few->ranks.size()
                                 << " listed, " << count << " elements, seed " << Catch::rngSeed());
            check_same(some.run(count), all.run(count));
          }
        });
      }
    }
  }
  sample.run(random);
  CHECK(listed > (test::kSanitized ? 5 : 100));
}
