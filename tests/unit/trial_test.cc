// Taking turns among plans whose estimate was wrong.
#include "exec/adapt/trial.h"

#include <random>

#include "support/catch.h"

namespace tutti::exec {
namespace {

/// Calls until it is settled; at most so many.
int settle(Trial& trial, const std::vector<double>& us, std::mt19937_64& random) {
  int calls = 0;
  for (; !trial.settled() && calls < 1000; ++calls) {
    // What disturbs a call makes it slower, never faster.
    const double noise = random() % 3 == 0 ? 1 + 1e-3 * static_cast<double>(random() % 5000) : 1;
    trial.note(us[trial.plan()] * noise);
  }
  return calls;
}

TEST_CASE("a wrong estimate ends with the fastest plan, a right one with the first") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<double> us(1 + random() % 4);
    for (double& time : us) time = 1 + static_cast<double>(random() % 1000);
    const auto fastest =
        static_cast<std::size_t>(std::min_element(us.begin(), us.end()) - us.begin());
    Trial wrong(us.size(), us[0] / 3);
    const int calls = settle(wrong, us, random);
    CHECK(wrong.settled());
    CHECK(calls <= static_cast<int>(Trial::kPatience + 4 * (Trial::kCalls + 1)));
    // Half of the calls that count may have been disturbed: within the noise.
    CHECK(us[wrong.plan()] <= us[fastest] * 6);
    std::vector<double> quiet = us;
    Trial exact(us.size(), us[0] / 3);
    while (!exact.settled()) exact.note(quiet[exact.plan()]);
    CHECK(quiet[exact.plan()] == us[fastest]);

    Trial right(us.size(), us[0]);
    while (!right.settled()) right.note(us[right.plan()]);
    CHECK(right.plan() == 0);
  }
}

TEST_CASE("some slow calls among many do not start a trial, nor does the first") {
  Trial trial(3, 10);
  trial.note(1e6);  // The first binds the plan.
  for (int i = 1; i < static_cast<int>(Trial::kPatience); ++i) trial.note(i % 30 == 0 ? 1e6 : 10);
  CHECK(trial.settled());
  CHECK(trial.plan() == 0);
}

TEST_CASE("without a prediction all plans are compared, and again, as ranks may have moved") {
  Trial trial(3, 0);
  std::vector<double> us{3, 1, 2};
  const auto settle = [&] {
    int calls = 0;
    for (; !trial.settled(); ++calls) trial.note(us[trial.plan()]);
    return calls;
  };
  constexpr auto kMostCalls = static_cast<int>(Trial::kRounds * 3 * (Trial::kCalls + 1));
  CHECK(settle() <= kMostCalls);
  CHECK(trial.plan() == 1);
  us = {1, 2, 3};
  for (int i = 1; i < Trial::kMostAgain; ++i) {
    trial.begin();
    REQUIRE(trial.plan() == 1);
    REQUIRE(trial.settled());
  }
  trial.begin();
  REQUIRE_FALSE(trial.settled());
  CHECK(settle() <= kMostCalls);
  CHECK(trial.plan() == 0);
}

TEST_CASE("what holds the machine up for a whole turn does not decide") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::size_t plans = 2 + random() % 3;
    std::vector<double> us;
    for (std::size_t plan = 0; plan < plans; ++plan)
      us.push_back(10 + static_cast<double>(random() % 100));
    Trial trial(plans, 0);
    // As many calls as a turn has, from any call on.
    const std::size_t held_up = random() % (Trial::kRounds * plans * Trial::kCalls);
    for (std::size_t call = 0; !trial.settled(); ++call) {
      const bool slow = call >= held_up && call < held_up + Trial::kCalls;
      trial.note(us[trial.plan()] * (slow ? 20 : 1));
    }
    CHECK(us[trial.plan()] == *std::min_element(us.begin(), us.end()));
  }
}

TEST_CASE("long calls are compared again after fewer of them") {
  Trial trial(2, 0);
  while (!trial.settled()) trial.note(trial.plan() == 0 ? 2e4 : 1e4);
  int calls = 0;
  for (; trial.settled() && calls < Trial::kMostAgain; ++calls) trial.begin();
  CHECK(calls == Trial::kLeastAgain);
  CHECK(trial.plan() == 0);
}

TEST_CASE("long calls are few, so fewer of them decide") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<double> us{Trial::kLongUs + static_cast<double>(random() % 1000),
                                 Trial::kLongUs + static_cast<double>(random() % 1000)};
    Trial trial(2, 0);
    int calls = 0;
    // One call of each is disturbed.
    const std::size_t disturbed = random() % 2;
    for (; !trial.settled(); ++calls) {
      const std::size_t of_plan = trial.plan() == 0 ? static_cast<std::size_t>(calls - 1)
                                                    : static_cast<std::size_t>(calls - 3);
      trial.note(us[trial.plan()] * (of_plan == disturbed ? 3 : 1));
    }
    CHECK(calls == 5);  // A cold one, and two of each.
    CHECK(us[trial.plan()] == std::min(us[0], us[1]));
  }
}

TEST_CASE("what was tried because of a prediction is not tried again") {
  Trial trial(2, 1);
  while (!trial.settled()) trial.note(trial.plan() == 0 ? 10 : 5);
  for (int i = 0; i < 2 * Trial::kMostAgain; ++i) {
    trial.begin();
    REQUIRE(trial.settled());
    REQUIRE(trial.plan() == 1);
  }
}

TEST_CASE("one plan, no time: nothing to try") {
  CHECK(Trial().settled());
  CHECK(Trial(1, 5).settled());
  CHECK(Trial(1, 0).settled());
  Trial trial(2, 5);
  for (int i = 0; i < 1000; ++i) trial.note(0);
  CHECK_FALSE(trial.settled());
  CHECK(trial.plan() == 0);
}

}  // namespace
}  // namespace tutti::exec
