// Whether a rank moves off a crowded CPU, on a clock and a kernel that the test plays.
#include "exec/adapt/cpu_rebalancing.h"

#include <random>

#include "support/catch.h"

namespace tutti::exec {
namespace {

using Move = CpuRebalancing::Move;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A rank that makes calls on a machine where being crowded or not costs what the test says.
struct Machine {
  CpuRebalancing::Span oversubscribed_call, spread_call;
  CpuRebalancing::Span until_oversubscribed;  // The kernel moves it back after so long.
  bool tries = true;

  struct Outcome {
    CpuRebalancing::Span total{}, oversubscribed{};
    int asides = 0, backs = 0;
    CpuRebalancing::Span least_between = std::chrono::hours(1);
  };

  Outcome run(CpuRebalancing::Span length, std::mt19937_64& random) const {
    CpuRebalancing crowding(tries);
    Outcome outcome;
    const CpuRebalancing::Time begin{std::chrono::hours(1)};
    CpuRebalancing::Time now = begin, spread_since = begin, last_aside{};
    bool oversubscribed = true;
    for (std::uint64_t number = 0; now - begin < length; number += 16) {
      const auto spent = 16 * (oversubscribed ? oversubscribed_call : spread_call);
      now += spent / 8 * static_cast<int>(6 + random() % 5);
      if (oversubscribed) outcome.oversubscribed += spent;
      if (!oversubscribed && now - spread_since > until_oversubscribed) oversubscribed = true;
      switch (crowding.look(now, number, oversubscribed)) {
        case Move::kStay: break;
        case Move::kAside:
          CHECK(oversubscribed);
          ++outcome.asides;
          outcome.least_between =
              std::min<CpuRebalancing::Span>(outcome.least_between, now - last_aside);
          last_aside = spread_since = now;
          oversubscribed = false;
          break;
        case Move::kBack:
          CHECK_FALSE(oversubscribed);
          ++outcome.backs;
          oversubscribed = true;
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
    CpuRebalancing crowding(tries);
    CpuRebalancing::Time now{};
    for (std::uint64_t number = 0; number < 1000; ++number)
      REQUIRE(crowding.look(now += microseconds(100), number, false) == Move::kStay);
  }
}

TEST_CASE("where each rank has a CPU, a peer's old word of its CPU moves nobody") {
  CpuRebalancing crowding(false);
  CpuRebalancing::Time now{};
  std::uint64_t number = 0;
  for (int times = 0; times < 100; ++times) {
    for (const int us : {50, 50, 60}) {
      now += microseconds(us);
      REQUIRE(crowding.look(now, ++number, true) == Move::kStay);
    }
    REQUIRE(crowding.look(now += microseconds(10), ++number, false) == Move::kStay);
  }
  // Slow calls: the peer's word is of an earlier one still.
  for (std::uint64_t call = 0; call < CpuRebalancing::kSureCalls; ++call)
    REQUIRE(crowding.look(now += milliseconds(4), ++number, true) == Move::kStay);
  // What stays so is true.
  REQUIRE(crowding.look(now += milliseconds(4), ++number, true) == Move::kAside);
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
    CHECK(outcome.oversubscribed <
          outcome.asides * (CpuRebalancing::kPause + 4 * 16 * machine.oversubscribed_call));
    CHECK(outcome.backs == 0);
    CHECK(outcome.asides >= std::chrono::seconds(4) / (period + milliseconds(2)));
    CHECK(outcome.least_between >= CpuRebalancing::kPause);
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
  CHECK(outcome.oversubscribed * 100 > outcome.total * 95);
}

TEST_CASE("what the kernel has undone is not undone again") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int until : {1, 3, 7, 9, 11}) {
    const Machine machine{microseconds(8), microseconds(40), milliseconds(until)};
    const auto outcome = machine.run(std::chrono::seconds(10), random);
    CHECK(outcome.oversubscribed * 2 > outcome.total);
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
