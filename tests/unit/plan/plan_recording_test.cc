// What the estimator records: steps and messages in an order that could have happened, and that
// ends when the estimate says.
#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "plan/estimate/estimate.h"
#include "plan/passes/passes.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace tutti;
using plan::Recording;

namespace {

constexpr double kClose = 1e-5;  // Times are whole picoseconds, summed as doubles.

// All links alike, and every rank has a port out and one in.
plan::CostModel machine(int ranks, double latency_us, double gigabytes_per_second) {
  plan::CostModel model;
  model.reduce_gigabytes_per_second = 30;
  model.step_us = 0.05;
  for (int i = 0; i < 2 * ranks; ++i)
    model.resources.push_back({.gigabytes_per_second = gigabytes_per_second});
  model.link = [=](Rank from, Rank to) {
    return plan::Path({latency_us, 0}, {{2 * static_cast<std::uint32_t>(from.value)},
                                        {2 * static_cast<std::uint32_t>(to.value) + 1}});
  };
  return model;
}

// The steps of a lane follow one another, in the order of the plan, tile after tile.
void check_lanes(const plan::Plan& plan, const Recording& recording) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, const Recording::Step*> last;
  for (const Recording::Step& step : recording.steps) {
    REQUIRE(step.rank < plan.ranks.size());
    REQUIRE(step.lane < plan.ranks[step.rank].lanes.size());
    REQUIRE(step.step < plan.ranks[step.rank].lanes[step.lane].steps.size());
    CHECK(step.ready_us <= step.start_us + kClose);
    CHECK(step.start_us <= step.end_us + kClose);
    const Recording::Step*& before = last[{step.rank, step.lane}];
    if (before != nullptr) {
      CHECK(before->end_us == Approx(step.ready_us).margin(kClose));
      CHECK(std::pair(before->tile, before->step) < std::pair(step.tile, step.step));
    }
    const bool waited = step.waited != Recording::Waited::kForNothing;
    CHECK(waited == (step.start_us > step.ready_us));
    CHECK((waited || step.after == Recording::kNone));
    if (step.after != Recording::kNone)
      CHECK(recording.steps[step.after].end_us <= step.start_us + kClose);
    before = &step;
  }
}

// A message departs when its sender is done, and is there before its receiver starts.
void check_messages(const Recording& recording) {
  for (const Recording::Message& message : recording.messages) {
    const Recording::Step& sender = recording.steps.at(message.sender);
    CHECK(sender.rank == message.from);
    CHECK(sender.lane == message.lane);
    CHECK(message.departs_us == Approx(sender.end_us).margin(kClose));
    CHECK(message.departs_us <= message.sent_us + kClose);
    CHECK(message.sent_us <= message.arrives_us + kClose);
    const Recording::Step& receiver = recording.steps.at(message.receiver);  // A call leaves none.
    CHECK(receiver.rank == message.to);
    CHECK(receiver.lane == message.lane);
    CHECK(message.arrives_us <= receiver.start_us + kClose);
  }
}

void check_recording(const plan::Plan& plan, std::size_t count, const plan::CostModel& model) {
  constexpr std::size_t kSlot = 4096;
  plan::Estimator estimator(plan, model, DataType::kFloat32, kSlot, 2);
  const plan::Estimate plain = estimator.run(count);
  Recording recording;
  recording.steps.resize(3);  // Another run's: they go.
  const plan::Estimate estimate = estimator.run(count, &recording);
  CHECK(estimate.microseconds == plain.microseconds);
  CHECK(estimate.latency_us == plain.latency_us);
  CHECK(estimate.latency_us <= estimate.microseconds + kClose);
  REQUIRE(recording.tiles == recording.of_tiles);
  CHECK(recording.microseconds == estimate.microseconds);
  double end = 0;
  for (const Recording::Step& step : recording.steps) end = std::max(end, step.end_us);
  CHECK(end == Approx(estimate.microseconds).margin(kClose));
  check_lanes(plan, recording);
  check_messages(recording);
}

}  // namespace

TEST_CASE("recordings of every algorithm are in order and end with the estimate") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (const Algorithm* algorithm : algorithms()) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      const plan::Shape shape{algorithm->collective, ranks, ranks / 2, 1};
      if (!algorithm->applies(shape)) continue;
      const plan::CostModel model =
          machine(ranks, 0.1 * static_cast<double>(random() % 50), 1 + random() % 20);
      const plan::Plan plain = build(*algorithm, shape);
      std::vector<plan::Plan> plans{plain, plan::fuse(plain, 2), plan::replicate(plain, 2)};
      if (auto direct = plan::direct(plain)) plans.push_back(*std::move(direct));
      if (auto multicast = plan::multicast(plain)) plans.push_back(*std::move(multicast));
      for (const plan::Plan& plan : plans) {
        const std::size_t count = 1 + random() % 20'000;
        INFO(to_string(algorithm->collective)
             << " " << plan.name << ", " << ranks << " ranks, " << count << " elements");
        check_recording(plan, count, model);
      }
    }
  }
}

TEST_CASE("every step is recorded once for each tile that has something of it") {
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  REQUIRE(ring != nullptr);
  const plan::Plan plan = build(*ring, {Collective::kAllReduce, 4, 0, 1});
  constexpr std::size_t kTiles = 3, kTileElements = 1024;
  Recording recording;
  const plan::CostModel model = machine(4, 1, 10);
  plan::Estimator(plan, model, DataType::kFloat32, kTileElements * 4, 2)
      .run(kTiles * kTileElements * 4, &recording);  // Four pieces of three full tiles each.
  std::size_t steps = 0;
  for (const plan::RankPlan& rank : plan.ranks) steps += rank.lanes.at(0).steps.size();
  CHECK(recording.steps.size() == kTiles * steps);
  double bytes = 0;
  for (const Recording::Message& message : recording.messages) bytes += message.bytes;
  // 2 (n - 1) / n of the message leave each of n ranks.
  CHECK(bytes == Approx(2 * 3 * (kTiles * kTileElements * 4 * 4)));
}

TEST_CASE("of a long message the first tiles are recorded, and how many there are") {
  const Algorithm* ring = find_algorithm(Collective::kAllGather, "ring");
  REQUIRE(ring != nullptr);
  const plan::Plan plan = build(*ring, {Collective::kAllGather, 3, 0, 1});
  const plan::CostModel model = machine(3, 1, 10);
  plan::Estimator estimator(plan, model, DataType::kFloat32, 1024, 2);
  Recording recording;
  const auto estimate = estimator.run(1000 * 256, &recording);
  CHECK(recording.of_tiles == 1000);
  CHECK(recording.tiles < 1000);
  CHECK(recording.tiles > 1);
  CHECK(recording.microseconds < estimate.microseconds);
  check_lanes(plan, recording);
  check_messages(recording);
}

TEST_CASE("where only distance costs, all of the time is latency") {
  for (const Algorithm* algorithm : algorithms()) {
    for (const int ranks : {2, 4, 7}) {
      const plan::Shape shape{algorithm->collective, ranks, 0, 1};
      if (!algorithm->applies(shape)) continue;
      INFO(to_string(algorithm->collective) << " " << algorithm->name << ", " << ranks << " ranks");
      plan::CostModel model;
      model.reduce_gigabytes_per_second = 0;
      model.step_us = 0;
      model.link = [](Rank from, Rank to) {
        return LinkCost{1.0 + 0.125 * ((from.value + to.value) % 3), 0};
      };
      const auto estimate =
          plan::Estimator(build(*algorithm, shape), model, DataType::kFloat32, 4096, 2).run(5000);
      CHECK(estimate.microseconds > 0);
      CHECK(estimate.latency_us == Approx(estimate.microseconds));
    }
  }
}
