// Whether a rank moves off a crowded CPU, on a clock and a kernel that the test plays.
#include "exec/adapt/crowding.h"

#include <random>

#include "support/catch.h"

namespace tutti::exec {
namespace {

using Move = Crowding::Move;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A rank that makes calls on a machine where being crowded or not costs what the test says.
struct Machine {
  Crowding::Span crowded_call, spread_call;
  Crowding::Span until_crowded;  // The kernel moves it back after so long.
  bool tries = true;

  struct Outcome {
    Crowding::Span total{}, crowded{};
    int asides = 0, backs = 0;
    Crowding::Span least_between = std::chrono::hours(1);
  };

  Outcome run(Crowding::Span length, std::mt19937_64& random) const {
    Crowding crowding(tries);
    Outcome outcome;
    const Crowding::Time begin{std::chrono::hours(1)};
    Crowding::Time now = begin, spread_since = begin, last_aside{};
    bool crowded = true;
    for (std::uint64_t number = 0; now - begin < length; number += 16) {
      const auto spent = 16 * (crowded ? crowded_call : spread_call);
      now += spent / 8 * static_cast<int>(6 + random() % 5);
      if (crowded) outcome.crowded += spent;
      if (!crowded && now - spread_since > until_crowded) crowded = true;
      switch (crowding.look(now, number, crowded)) {
        case Move::kStay: break;
        case Move::kAside:
          CHECK(crowded);
          ++outcome.asides;
          outcome.least_between = std::min<Crowding::Span>(outcome.least_between, now - last_aside);
          last_aside = spread_since = now;
          crowded = false;
          break;
        case Move::kBack:
          CHECK_FALSE(crowded);
          ++outcome.backs;
          crowded = true;
          break;
      }
    }
    outcome.total = now - begin;
    return outcome;
  }
};

}  // namespace

TEST_CASE("a rank that is not crowded stays where it is") {
  for (const bool tries : {false, true}) {
    Crowding crowding(tries);
    Crowding::Time now{};
    for (std::uint64_t number = 0; number < 1000; ++number)
      REQUIRE(crowding.look(now += microseconds(100), number, false) == Move::kStay);
  }
}

TEST_CASE("a move that pays is made soon, and again when the kernel undoes it") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const bool tries : {false, true}) {
    const auto period = milliseconds(5 + random() % 200);
    const Machine machine{microseconds(8), microseconds(1), period, tries};
    const auto outcome = machine.run(std::chrono::seconds(5), random);
    // To be timed, and for what has been too soon after the last one.
    CHECK(outcome.crowded < outcome.asides * (Crowding::kPause + 4 * 16 * machine.crowded_call));
    CHECK(outcome.backs == 0);
    CHECK(outcome.asides >= std::chrono::seconds(4) / (period + milliseconds(2)));
    CHECK(outcome.least_between >= Crowding::kPause);
  }
}

TEST_CASE("a move that makes calls slower is undone, and seldom tried again") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const Machine machine{microseconds(8), microseconds(20 + random() % 500), std::chrono::hours(1)};
  const auto outcome = machine.run(std::chrono::seconds(30), random);
  CHECK(outcome.asides - outcome.backs <= 1);  // The last one may be on trial yet.
  CHECK(outcome.asides >= 20);                 // It doesn't give up: what else ran there may end.
  CHECK(outcome.asides <= 40);
  CHECK(outcome.crowded * 100 > outcome.total * 95);
}

TEST_CASE("what the kernel has undone is not undone again") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int until : {1, 3, 7, 9, 11}) {
    const Machine machine{microseconds(8), microseconds(40), milliseconds(until)};
    const auto outcome = machine.run(std::chrono::seconds(10), random);
    CHECK(outcome.crowded * 2 > outcome.total);
  }
}

TEST_CASE("where nothing else can explain it, a crowded rank always moves") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const Machine machine{microseconds(8), microseconds(40), milliseconds(3), false};
  const auto outcome = machine.run(std::chrono::seconds(1), random);
  CHECK(outcome.backs == 0);
  CHECK(outcome.asides >= 150);
}

}  // namespace tutti::exec
