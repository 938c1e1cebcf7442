#include "base/wait.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace tutti {

WaitPolicy wait_policy(int ranks, int cpus, int spin) {
  WaitPolicy policy;
  // Measured on 2 cores, 8-byte all-reduce: a few dozen pauses are as good as thousands when every
  // rank has a CPU, and any pause at all costs when it has not.
  policy.ranks_per_cpu = std::max(1, (ranks + cpus - 1) / std::max(1, cpus));
  policy.spins = spin >= 0 ? spin : (policy.ranks_per_cpu == 1 ? 200 : 0);
  return policy;
}

bool register_heavy_barrier() {
  static const bool registered =
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  return registered;
}

void ring(Doorbell& bell) {
  // release: the woken rank sees all that was posted before; pairs with the acquire in sleep_on.
  bell.rings.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

namespace wait_detail {

void heavy_barrier(bool fence) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!fence) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

void futex_sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                 std::chrono::nanoseconds longest) {
  if (longest.count() <= 0) return;
  const timespec span{static_cast<time_t>(longest.count() / 1'000'000'000),
                      static_cast<long>(longest.count() % 1'000'000'000)};
  // Not FUTEX_PRIVATE: the word lies in memory shared between processes.
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &span, nullptr, 0);
}

}  // namespace wait_detail
}  // namespace tutti
