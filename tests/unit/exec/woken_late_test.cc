// Ranks that take long to wake up sleep a few times, not in each call (exec/adapt/patience.h).
#include <dlfcn.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "tutti/communicator.h"

namespace {

using std::chrono::milliseconds;

std::atomic<bool> wakes_late{false};
std::atomic<int> began{0}, sleeps{0};  // Sleeps, and those of them that another rank has ended.

}  // namespace

/// The library sleeps by this function. What was woken is up only after a while.
extern "C" long syscall(long number, ...) noexcept {
  using Syscall = long (*)(long, long, long, long, long, long, long);
  static const auto kReal = reinterpret_cast<Syscall>(dlsym(RTLD_NEXT, "syscall"));
  va_list list;
  va_start(list, number);
  long given[6];
  for (long& one : given) one = va_arg(list, long);
  va_end(list);
  const bool waits = number == SYS_futex && (given[1] & FUTEX_CMD_MASK) == FUTEX_WAIT;
  if (waits && wakes_late.load()) ++began;
  const long result = kReal(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  if (waits && result == 0 && wakes_late.load()) {
    ++sleeps;
    const auto until = std::chrono::steady_clock::now() + milliseconds(1);
    while (std::chrono::steady_clock::now() < until) sched_yield();
  }
  return result;
}

namespace tutti {

TEST_CASE("Ranks with a CPU each that wake up late stop sleeping") {
  constexpr int kCalls = 1000;
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  // On one CPU, or the quota of one, ranks have to sleep.
  if (comms->front().describe().find(" 0 spins") != std::string::npos) return;
  wakes_late = true;
  std::atomic<int> failed{0};
  {
    std::vector<std::jthread> ranks;
    for (Communicator& comm : *comms) {
      ranks.emplace_back([&] {
        std::vector<float> data(2, 1.0F);
        while (comm.rank() == Rank{1} && began == 0) std::this_thread::sleep_for(milliseconds(1));
        for (int call = 0; call < kCalls; ++call) {
          data.assign(2, 1.0F);
          failed += !comm.all_reduce(data.data(), data.data(), 2, DataType::kFloat32, {});
        }
      });
    }
  }
  wakes_late = false;
  CHECK(failed == 0);
  CHECK(began > 0);
  CHECK(sleeps < kCalls / 4);
}

}  // namespace tutti
