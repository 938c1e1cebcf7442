// How a rank waits: spins, yields, then checks its peers between naps.
#include "base/wait.h"

#include <chrono>
#include <thread>

#include "support/catch.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kYields = 1'000;

/// A look at the data of a rank whose CPU is crowded: others run meanwhile.
struct SlowLook {
  bool operator()() {
    ++looks;
    std::this_thread::sleep_for(10ms);
    return false;
  }
  int looks = 0;
};

// 20 ms are two looks or three; the clock is read at every fourth, and ticks every 4 ms or 10.
constexpr int kMostLooks = 4 * kYieldsPerLook;

TEST_CASE("a rank yields as often as it should, until it is ready") {
  int looks = 0;
  CHECK_FALSE(yield_until(kYieldsPerLook, [&] { return ++looks == kYields; }));
  CHECK(looks == kYieldsPerLook);
  CHECK(yield_until(kYieldsPerLook, [&] { return ++looks == kYieldsPerLook + 2; }));
  CHECK(looks == kYieldsPerLook + 2);
  CHECK_FALSE(yield_until(0, [&] { return ++looks > 0; }));
  CHECK(looks == kYieldsPerLook + 2);
}

TEST_CASE("yields that take long end") {
  SlowLook look;
  CHECK_FALSE(yield_until(kYields, look));
  CHECK(look.looks >= 2);
  CHECK(look.looks <= kMostLooks);
}

TEST_CASE("a rank whose yields take long checks its peers soon") {
  SlowLook look;
  int looks_before = 0;
  const auto check_health = [&] {
    looks_before = look.looks;
    return false;
  };
  const auto sleep = [](auto& /*ready*/, auto /*longest*/) { return false; };
  CHECK_FALSE(wait_until(
      {.spins = 0, .yields = kYields}, look, [] {}, check_health, sleep));
  CHECK(looks_before >= 2);
  CHECK(looks_before <= kMostLooks + 1);
}

}  // namespace
}  // namespace tutti::test
