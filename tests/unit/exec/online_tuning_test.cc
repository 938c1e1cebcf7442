// Taking turns among plans whose estimate was wrong.
#include "exec/adapt/online_tuning.h"

#include <random>

#include "support/catch.h"

namespace tutti::exec {
namespace {

/// Calls until it is settled; at most so many.
int settle(OnlineTuning& online_tuning, const std::vector<double>& us, std::mt19937_64& random) {
  int calls = 0;
  for (; !online_tuning.converged() && calls < 1000; ++calls) {
    // What disturbs a call makes it slower, never faster.
    const double noise = random() % 3 == 0 ? 1 + 1e-3 * static_cast<double>(random() % 5000) : 1;
    online_tuning.note(us[online_tuning.plan()] * noise);
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
    OnlineTuning wrong(us.size(), us[0] / 3);
    const int calls = settle(wrong, us, random);
    CHECK(wrong.converged());
    CHECK(calls <= static_cast<int>(OnlineTuning::kPatience + 4 * (OnlineTuning::kCalls + 1)));
    // Half of the calls that count may have been disturbed: within the noise.
    CHECK(us[wrong.plan()] <= us[fastest] * 6);
    std::vector<double> quiet = us;
    OnlineTuning exact(us.size(), us[0] / 3);
    while (!exact.converged()) exact.note(quiet[exact.plan()]);
    CHECK(quiet[exact.plan()] == us[fastest]);

    OnlineTuning right(us.size(), us[0]);
    while (!right.converged()) right.note(us[right.plan()]);
    CHECK(right.plan() == 0);
  }
}

TEST_CASE("some slow calls among many do not start a trial, nor does the first") {
  OnlineTuning online_tuning(3, 10);
  online_tuning.note(1e6);  // The first binds the plan.
  for (int i = 1; i < static_cast<int>(OnlineTuning::kPatience); ++i)
    online_tuning.note(i % 30 == 0 ? 1e6 : 10);
  CHECK(online_tuning.converged());
  CHECK(online_tuning.plan() == 0);
}

TEST_CASE("without a prediction all plans are compared, and again, as ranks may have moved") {
  OnlineTuning online_tuning(3, 0);
  std::vector<double> us{3, 1, 2};
  const auto settle = [&] {
    int calls = 0;
    for (; !online_tuning.converged(); ++calls) online_tuning.note(us[online_tuning.plan()]);
    return calls;
  };
  constexpr auto kMostCalls =
      static_cast<int>(OnlineTuning::kRounds * 3 * (OnlineTuning::kCalls + 1));
  CHECK(settle() <= kMostCalls);
  CHECK(online_tuning.plan() == 1);
  us = {1, 2, 3};
  for (int i = 1; i < OnlineTuning::kMostAgain; ++i) {
    online_tuning.begin();
    REQUIRE(online_tuning.plan() == 1);
    REQUIRE(online_tuning.converged());
  }
  online_tuning.begin();
  REQUIRE_FALSE(online_tuning.converged());
  CHECK(settle() <= kMostCalls);
  CHECK(online_tuning.plan() == 0);
}

TEST_CASE("what holds the machine up for a whole turn does not decide") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::size_t plans = 2 + random() % 3;
    std::vector<double> us;
    for (std::size_t plan = 0; plan < plans; ++plan)
      us.push_back(10 + static_cast<double>(random() % 100));
    OnlineTuning online_tuning(plans, 0);
    // As many calls as a turn has, from any call on.
    const std::size_t held_up = random() % (OnlineTuning::kRounds * plans * OnlineTuning::kCalls);
    for (std::size_t call = 0; !online_tuning.converged(); ++call) {
      const bool slow = call >= held_up && call < held_up + OnlineTuning::kCalls;
      online_tuning.note(us[online_tuning.plan()] * (slow ? 20 : 1));
    }
    CHECK(us[online_tuning.plan()] == *std::min_element(us.begin(), us.end()));
  }
}

TEST_CASE("long calls are compared again after fewer of them") {
  OnlineTuning online_tuning(2, 0);
  while (!online_tuning.converged()) online_tuning.note(online_tuning.plan() == 0 ? 2e4 : 1e4);
  int calls = 0;
  for (; online_tuning.converged() && calls < OnlineTuning::kMostAgain; ++calls)
    online_tuning.begin();
  CHECK(calls == OnlineTuning::kLeastAgain);
  CHECK(online_tuning.plan() == 0);
}

TEST_CASE("long calls are few, so fewer of them decide") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const std::vector<double> us{OnlineTuning::kLongUs + static_cast<double>(random() % 1000),
                                 OnlineTuning::kLongUs + static_cast<double>(random() % 1000)};
    OnlineTuning online_tuning(2, 0);
    int calls = 0;
    // One call of each is disturbed.
    const std::size_t disturbed = random() % 2;
    for (; !online_tuning.converged(); ++calls) {
      const std::size_t of_plan = online_tuning.plan() == 0 ? static_cast<std::size_t>(calls - 1)
                                                            : static_cast<std::size_t>(calls - 3);
      online_tuning.note(us[online_tuning.plan()] * (of_plan == disturbed ? 3 : 1));
    }
    CHECK(calls == 5);  // A cold one, and two of each.
    CHECK(us[online_tuning.plan()] == std::min(us[0], us[1]));
  }
}

TEST_CASE("what was tried because of a prediction is not tried again") {
  OnlineTuning online_tuning(2, 1);
  while (!online_tuning.converged()) online_tuning.note(online_tuning.plan() == 0 ? 10 : 5);
  for (int i = 0; i < 2 * OnlineTuning::kMostAgain; ++i) {
    online_tuning.begin();
    REQUIRE(online_tuning.converged());
    REQUIRE(online_tuning.plan() == 1);
  }
}

TEST_CASE("one plan, no time: nothing to try") {
  CHECK(OnlineTuning().converged());
  CHECK(OnlineTuning(1, 5).converged());
  CHECK(OnlineTuning(1, 0).converged());
  OnlineTuning online_tuning(2, 5);
  for (int i = 0; i < 1000; ++i) online_tuning.note(0);
  CHECK_FALSE(online_tuning.converged());
  CHECK(online_tuning.plan() == 0);
}

}  // namespace
}  // namespace tutti::exec
