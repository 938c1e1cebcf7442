// How long a rank yields before it sleeps.
#include "exec/adapt/patience.h"

#include "support/catch.h"

namespace tutti::exec {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kYields = 200;

/// Two ranks that wait for each other in each call, and take `wake` from a ring until they are
/// awake: how many of the calls went by sleeping. One yield takes a microsecond.
int calls_that_slept(int ranks_per_cpu, microseconds wake, int calls) {
  Patience one({.spins = 0, .yields = kYields, .ranks_per_cpu = ranks_per_cpu});
  Patience other = one;
  int slept = 0;
  Patience *waits = &one, *awakes = &other;  // The second one was asleep, and comes later.
  for (int call = 0; call < calls; ++call) {
    if (microseconds(waits->policy().yields) >= wake) break;  // It comes in time: nobody sleeps.
    ++slept;
    waits->slept(wake - microseconds(waits->policy().yields));
    std::swap(waits, awakes);
  }
  return slept;
}

TEST_CASE("ranks that wake each other again and again stop sleeping") {
  CHECK(calls_that_slept(1, microseconds(100), 1000) == 0);
  CHECK(calls_that_slept(1, microseconds(300), 1000) <= 2);
  CHECK(calls_that_slept(1, milliseconds(5), 1000) <= 10);
  // Where ranks share CPUs, to yield for long keeps others from running.
  CHECK(calls_that_slept(2, microseconds(300), 1000) == 1000);
}

TEST_CASE("patience has an end, and a long sleep ends it") {
  Patience patience({.spins = 0, .yields = kYields, .ranks_per_cpu = 1});
  for (int waits = 0; waits < 100; ++waits) patience.slept(milliseconds(1));
  CHECK(patience.policy().yields == Patience::kMost * kYields);
  patience.slept(Patience::kLong);
  CHECK(patience.policy().yields == kYields);
}

}  // namespace
}  // namespace tutti::exec
