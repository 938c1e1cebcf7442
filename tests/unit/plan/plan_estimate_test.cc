// The estimator against cases that can be worked out on paper.
#include <cmath>
#include <functional>
#include <string>

#include "plan/estimate/estimate.h"
#include "plan/passes/passes.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace tutti;

namespace {

constexpr double kFree = 0;  // A rate of 0 costs no time.

// All links alike; computing costs nothing.
plan::CostModel links(double latency_us, double gigabytes_per_second) {
  return {.link =
              [=](Rank, Rank) {
                return LinkCost{latency_us, gigabytes_per_second};
              },
          .reduce_gigabytes_per_second = kFree,
          .step_us = 0};
}

// The same; and all that leaves a rank, and all that comes in, passes a port of its own.
plan::CostModel ports(int ranks, double latency_us, double gigabytes_per_second,
                      const std::function<double(int rank)>& rate) {
  plan::CostModel model = links(latency_us, gigabytes_per_second);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int way = 0; way < 2; ++way)
      model.resources.push_back({.gigabytes_per_second = rate(rank)});
  }
  model.link = [=](Rank from, Rank to) {
    return plan::Path({latency_us, gigabytes_per_second},
                      {{2 * static_cast<std::uint32_t>(from.value)},
                       {2 * static_cast<std::uint32_t>(to.value) + 1}});
  };
  return model;
}

plan::Plan built(Collective collective, std::string_view name, int ranks) {
  const Algorithm* algorithm = find_algorithm(collective, name);
  REQUIRE(algorithm != nullptr);
  return build(*algorithm, {collective, ranks, 0, 1});
}

// Rank 0 sends to rank 1, which sends to rank 2, and so on; the message is one piece.
plan::Plan chain(int ranks) {
  plan::Plan plan{.name = "chain",
                  .shape = {Collective::kBroadcast, ranks, 0, 1},
                  .contract = Contract::kDeterministic,
                  .pieces = 1,
                  .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    plan::Builder builder(plan.shape, 1);
    std::vector<plan::Location> targets{builder.output(0)};
    if (rank + 1 < ranks) targets.push_back(builder.to(rank + 1, Form::kResult));
    const auto source = rank == 0 ? builder.input(0) : builder.from(rank - 1, Form::kResult);
    builder.move(0, std::span(&source, 1), targets);
    plan.ranks.push_back(std::move(builder).finish());
  }
  return plan;
}

plan::Estimate floats(const plan::Plan& plan, std::size_t count, std::size_t slot_bytes, int slots,
                      const plan::CostModel& model) {
  return plan::Estimator(plan, model, DataType::kFloat32, slot_bytes, slots).run(count);
}

}  // namespace

TEST_CASE("nothing to move takes no time") {
  const auto estimate = floats(built(Collective::kAllReduce, "ring", 4), 0, 1024, 2, links(1, 1));
  CHECK(estimate.microseconds == 0);
  CHECK(estimate.bytes_on_busiest_link == 0);
  CHECK(estimate.messages_on_critical_path == 0);
}

TEST_CASE("one message is latency and bytes") {
  // 1 GB/s is 1000 bytes per microsecond.
  const plan::Plan plan = built(Collective::kAllReduce, "one_shot", 2);
  const auto estimate = floats(plan, 1000, 1 << 20, 2, links(3, 1));
  CHECK(estimate.microseconds == Approx(3 + 4));
  CHECK(estimate.bytes_on_busiest_link == 4000);
  CHECK(estimate.messages_on_critical_path == 1);
}

TEST_CASE("a port that sends message after message is busy for each of them") {
  // One shot sends to all others at once: by a free port in one latency, else one after another.
  for (const int ranks : {2, 3, 8, 33}) {
    const plan::Plan plan = built(Collective::kAllReduce, "one_shot", ranks);
    plan::CostModel model = ports(ranks, 3, kFree, [](int) { return kFree; });
    CHECK(floats(plan, 1, 1 << 20, 2, model).microseconds == Approx(3));
    for (std::size_t out = 0; out < model.resources.size(); out += 2)
      model.resources[out].message_us = 0.2;
    const auto estimate = floats(plan, 1, 1 << 20, 2, model);
    CHECK(estimate.microseconds == Approx(3 + 0.2 * (ranks - 1)));
    CHECK(estimate.busy_us[0] == Approx(0.2 * (ranks - 1)));
    CHECK(estimate.busy_us[1] == 0);
  }
}

TEST_CASE("steps and bytes in memory take their time") {
  plan::CostModel model = links(0, kFree);
  model.step_us = 0.5;
  const plan::Plan plan = built(Collective::kAllReduce, "one_shot", 2);  // Two moves in a row.
  CHECK(floats(plan, 1000, 1 << 20, 2, model).microseconds == Approx(2 * 0.5));
  model.reduce_gigabytes_per_second = 1;  // The first moves 8000 bytes, the second 12000.
  CHECK(floats(plan, 1000, 1 << 20, 2, model).microseconds == Approx(2 * 0.5 + 8 + 12));
}

TEST_CASE("what a step takes its lane by itself, lanes take side by side") {
  plan::CostModel model = links(0, kFree);
  model.lane_us = 0.5;
  const plan::Plan plan = built(Collective::kAllReduce, "one_shot", 2);  // Two moves in a row.
  CHECK(floats(plan, 1000, 1 << 20, 2, model).microseconds == Approx(2 * 0.5));
  CHECK(floats(plan::replicate(plan, 4), 1024, 1 << 20, 2, model).microseconds == Approx(2 * 0.5));
  model.lane_gigabytes_per_second = 1;  // The first moves 8000 bytes, the second 12000.
  CHECK(floats(plan, 1000, 1 << 20, 2, model).microseconds == Approx(2 * 0.5 + 8 + 12));
  CHECK(floats(plan::replicate(plan, 4), 4096, 1 << 20, 2, model).microseconds ==
        Approx(2 * 0.5 + 8.192 + 12.288));
  // What all lanes share may be what takes longer.
  model.reduce_gigabytes_per_second = 2;
  CHECK(floats(plan::replicate(plan, 4), 4096, 1 << 20, 2, model).microseconds ==
        Approx(2 * (8.192 + 12.288)));
}

TEST_CASE("lanes share the compute of their rank") {
  plan::CostModel model = links(0, kFree);
  model.reduce_gigabytes_per_second = 1;
  const plan::Plan plan = built(Collective::kAllReduce, "one_shot", 1);
  CHECK(floats(plan, 1024, 1 << 20, 2, model).microseconds == Approx(8.192));
  CHECK(floats(plan::replicate(plan, 4), 1024, 1 << 20, 2, model).microseconds == Approx(8.192));
}

TEST_CASE("a chain is a pipeline, also where its tiles are too many to simulate") {
  constexpr int kRanks = 5;
  const plan::Plan plan = chain(kRanks);
  for (const std::size_t tiles : {1u, 2u, 7u, 32u, 33u, 1000u, 1'000'000u}) {
    INFO(tiles << " tiles");
    const auto estimate = floats(plan, tiles * 256, 1024, 2, links(0, 1));
    CHECK(estimate.microseconds ==
          Approx(static_cast<double>(tiles + kRanks - 2) * 1.024).epsilon(1e-9));
    CHECK(estimate.bytes_on_busiest_link == Approx(static_cast<double>(tiles) * 1024));
  }
}

TEST_CASE("with latency on the way back one slot holds the sender up, more do not") {
  // A slot takes 1 us on the wire, 10 us to arrive, and its room as long to come back.
  const plan::Plan plan = chain(2);
  const auto at = [&](int slots) {
    return floats(plan, 20 * 250, 1000, slots, links(10, 1)).microseconds;
  };
  CHECK(at(1) == Approx(20 * (1 + 10) + 19 * 10));
  CHECK(at(32) == Approx(20 * 1 + 10));
  CHECK(at(2) < at(1));
  CHECK(at(4) < at(2));
}

TEST_CASE("bytes on the busiest link") {
  constexpr std::size_t kCount = 1 << 16;
  const double bytes = 4.0 * kCount;
  for (const int n : {2, 4, 8}) {
    INFO(n << " ranks");
    const auto busiest = [&](const plan::Plan& plan) {
      return floats(plan, kCount, 4096, 2, links(1, 1)).bytes_on_busiest_link;
    };
    CHECK(busiest(built(Collective::kAllReduce, "one_shot", n)) == Approx(bytes));
    CHECK(busiest(built(Collective::kAllReduce, "two_shot", n)) == Approx(2 * bytes / n));
    CHECK(busiest(built(Collective::kAllReduce, "ring", n)) == Approx(2 * bytes * (n - 1) / n));
    // Mapped accesses go over links as well: the share is read over one, the result written over
    // it.
    const auto direct = plan::direct(built(Collective::kAllReduce, "two_shot", n));
    REQUIRE(direct);
    CHECK(busiest(*direct) == Approx(2 * bytes / n));
    const auto multicast = plan::multicast(built(Collective::kAllReduce, "one_shot", n));
    REQUIRE(multicast);
    CHECK(busiest(*multicast) == Approx(bytes));
  }
}

TEST_CASE("messages on the critical path") {
  const auto messages = [](Collective collective, std::string_view name, int n) {
    return floats(built(collective, name, n), 1024, 1 << 20, 8, links(1, kFree))
        .messages_on_critical_path;
  };
  CHECK(messages(Collective::kAllReduce, "one_shot", 8) == 1);
  CHECK(messages(Collective::kAllReduce, "two_shot", 8) == 2);
  CHECK(messages(Collective::kAllReduce, "ring", 8) == 14);
  CHECK(messages(Collective::kAllReduce, "doubling", 8) == 3);
  CHECK(messages(Collective::kBroadcast, "binomial", 8) == 3);
  CHECK(messages(Collective::kBroadcast, "ring", 8) == 7);
  // With one slot the second message of a pair waits until the first has been read.
  CHECK(floats(chain(2), 1024, 2048, 1, links(1, kFree)).messages_on_critical_path == 2);
}

TEST_CASE("a slow link is as slow as it is") {
  plan::CostModel model = links(1, 10);
  model.link = [](Rank from, Rank to) {
    return LinkCost{1, from.value == 2 && to.value == 3 ? 0.1 : 10};
  };
  const plan::Plan plan = built(Collective::kAllReduce, "ring", 4);
  constexpr std::size_t kCount = 1 << 18;
  const double slow =
      2.0 * 3 / 4 * 4 * kCount / 100;  // All its bytes at 100 bytes per microsecond.
  const double took = floats(plan, kCount, 4096, 4, model).microseconds;
  CHECK(took >= slow);
  CHECK(took < 1.5 * slow);
}

TEST_CASE("a port is shared by all links of its rank") {
  plan::CostModel model = ports(4, 3, 1, [](int rank) { return rank == 0 ? 1.0 : 0.0; });
  const auto took = [&](Collective collective) {
    return floats(built(collective, "direct", 4), 1000, 1 << 20, 2, model).microseconds;
  };
  CHECK(took(Collective::kBroadcast) == Approx(3 * 4 + 3));  // Rank 0 sends to all.
  CHECK(took(Collective::kAllGather) == Approx(3 * 4 + 3));  // It also takes from all, meanwhile.
  model = ports(4, 3, 1, [](int rank) { return rank == 3 ? 0.5 : 0.0; });
  CHECK(took(Collective::kBroadcast) == Approx(8 + 3));
}

TEST_CASE("weights make the best of one rank with half the bandwidth") {
  // The network is not in the way, and messages are long.
  for (const int n : {4, 8, 16}) {
    INFO(n << " ranks");
    const plan::CostModel model =
        ports(n, 1, 1000, [n](int rank) { return rank == n / 2 ? 5.0 : 10.0; });
    plan::Shape shape{Collective::kAllReduce, n};
    shape.weights.assign(static_cast<std::size_t>(n), 1);
    shape.weights[static_cast<std::size_t>(n / 2)] = 0;
    const auto gigabytes_per_second = [&](std::string_view name) {
      const auto plan = build(*find_algorithm(Collective::kAllReduce, name), shape);
      constexpr std::size_t kCount = std::size_t{1} << 28;
      return 4e-3 * kCount / floats(plan, kCount, 1 << 16, 8, model).microseconds;
    };
    const double equal = gigabytes_per_second("two_shot"),
                 weighted = gigabytes_per_second("weighted");
    // n min(b) / 2(n-1), and min(min b, sum b / 2(n-1)): see weighted_all_reduce.cc.
    CHECK(equal == Approx(n * 5.0 / (2 * (n - 1))).epsilon(0.03));
    CHECK(weighted <= 5.0);
    CHECK(weighted / equal > (n == 4 ? 1.4 : 1.6));
  }
}

TEST_CASE("every plan has an estimate, and large messages cost in proportion") {
  test::for_each_plan({1, 2, 3, 5, 8}, [](const plan::Plan& plan) {
    for (const auto& variant : {std::optional(plan), plan::direct(plan), plan::multicast(plan),
                                std::optional(plan::replicate(plan, 2))}) {
      if (!variant) continue;
      INFO(variant->name << " on " << plan.ranks.size());
      plan::CostModel model = links(0.5, 10);
      model.reduce_gigabytes_per_second = 20;
      model.step_us = 0.02;
      double before = 0;
      const auto estimated = [&](std::size_t count) {
        return plan::Estimator(*variant, model, DataType::kBfloat16, 65536, 2).run(count);
      };
      for (const std::size_t count : {1u, 100u, 10'000u, 1'000'000u, 100'000'000u}) {
        const auto estimate = estimated(count);
        CHECK(std::isfinite(estimate.microseconds));
        CHECK(estimate.microseconds >= before);
        before = estimate.microseconds;
      }
      const double ten = estimated(1'000'000'000).microseconds;
      // One rank alone has nothing to do in an exclusive scan.
      if (before == 0) CHECK(plan.ranks.size() == 1);
      if (before == 0 && ten == 0) continue;
      CHECK(ten / before == Approx(10).epsilon(0.02));
    }
  });
}

TEST_CASE("sizes beyond 32 bits are no different") {
  const plan::Plan plan = built(Collective::kAllReduce, "ring", 8);
  constexpr std::size_t kCount = std::size_t{1} << 40;
  const auto estimate = floats(plan, kCount, 1 << 20, 2, links(1, 1));
  CHECK(estimate.bytes_on_busiest_link == Approx(4.0 * kCount * 2 * 7 / 8));
  CHECK(estimate.microseconds >= 4.0 * kCount * 2 * 7 / 8 / 1000);
  CHECK(estimate.microseconds < 1.1 * 4.0 * kCount * 2 * 7 / 8 / 1000);
}

TEST_CASE("steps that don't depend on each other are one phase of their lane") {
  // Each rank sends to seven others, and then takes what has come meanwhile.
  const plan::Plan plan = built(Collective::kAllToAll, "direct", 8);
  plan::CostModel model = links(0, kFree);
  model.lane_us = 1;
  const double together = floats(plan, 1, 1 << 20, 2, model).microseconds;
  model.sees_slots = false;  // What is taken is waited for step by step.
  const double apart = floats(plan, 1, 1 << 20, 2, model).microseconds;
  INFO(together << " and " << apart << " us");
  CHECK(together <= 3);
  CHECK(apart >= 8);
  CHECK(apart <= 9);
}

TEST_CASE("what takes longer than asked for is given up, and nothing else is") {
  for (const char* name : {"ring", "two_shot", "one_shot"}) {
    const plan::Plan plan = built(Collective::kAllReduce, name, 8);
    plan::CostModel model = links(1, 10);
    model.lane_us = 1;
    model.lane_gigabytes_per_second = 40;
    for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 18, std::size_t{1} << 26}) {
      INFO(name << ", " << count);
      const double us = floats(plan, count, 1 << 16, 4, model).microseconds;
      const auto within = [&](double limit_us) {
        plan::Estimator estimator(plan, model, DataType::kFloat32, 1 << 16, 4);
        return estimator.run(count, nullptr, 0, limit_us).microseconds;
      };
      CHECK(within(1.001 * us) == us);
      CHECK(within(0.999 * us) == plan::kBeyondLimit);
      CHECK(within(0.01 * us) == plan::kBeyondLimit);
    }
  }
}
