// How long a rank yields before it sleeps.
#include "exec/adapt/patience.h"

#include "support/catch.h"

namespace tutti::exec {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kFirst = 200;

/// Two ranks that wait for each other in each call, and take `wake` from a ring until they are
/// awake: how many of the calls went by sleeping. They yield 200 times and what patience adds; one
/// yield takes a microsecond.
int calls_that_slept(int first, microseconds wake, int calls) {
  Patience one(first), other(first);
  int slept = 0;
  Patience *waits = &one, *awakes = &other;  // The second one was asleep, and comes later.
  for (int call = 0; call < calls; ++call) {
    const microseconds patient(kFirst + waits->yields());
    if (patient >= wake) break;  // It comes in time: nobody sleeps.
    ++slept;
    waits->slept(wake - patient);
    std::swap(waits, awakes);
  }
  return slept;
}

TEST_CASE("ranks that wake each other again and again stop sleeping") {
  CHECK(calls_that_slept(kFirst, microseconds(100), 1000) == 0);
  CHECK(calls_that_slept(kFirst, microseconds(300), 1000) <= 2);
  CHECK(calls_that_slept(kFirst, milliseconds(5), 1000) <= 12);
  CHECK(calls_that_slept(0, microseconds(300), 1000) == 1000);
}

TEST_CASE("patience has an end, and a long sleep ends it") {
  Patience patience(kFirst);
  CHECK(patience.yields() == 0);
  for (int waits = 0; waits < 100; ++waits) patience.slept(milliseconds(1));
  CHECK(patience.yields() == Patience::kMost * kFirst);
  patience.slept(Patience::kLong);
  CHECK(patience.yields() == 0);
}

TEST_CASE("a patient rank stops yielding once it is ready") {
  Patience patience(kFirst);
  patience.slept(milliseconds(1));
  int looks = 0;
  CHECK(patience.yield_until([&] { return ++looks == 7; }));
  CHECK(looks == 7);
  CHECK(!patience.yield_until([&] { return ++looks == 0; }));
  CHECK(looks > 7);
  CHECK(looks <= 7 + kFirst);  // Fewer where yields take long: base/wait.h bounds their time.
}

}  // namespace
}  // namespace tutti::exec
