// Time, sleeping, and the calls that ask what machine this is: as a virtual machine says it.
#include <linux/futex.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstring>
#include <ctime>

#include "virtual/kernel/faults.h"
#include "virtual/kernel/files.h"
#include "virtual/kernel/raw.h"
#include "virtual/kernel/real.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt {
namespace {

// Clocks of hosts differ.
constexpr Time kFirstClock = 1000 * kSecond, kBetweenClocks = 777'777'777'777;
constexpr Time kEpoch = 1'700'000'000 * kSecond;
constexpr Time kCoarse = 4 * kMilli;
constexpr std::int32_t kFirstPid = 1000;

Time span_of(const timespec& span) {
  return static_cast<Time>(span.tv_sec) * kSecond + static_cast<Time>(span.tv_nsec);
}

void sleep_for(Time span) {
  point("sleep");
  if (span == 0) return yield();
  (void)wait_until(Wait::kTime, world->now + span);
}

/// The futex's identity: of memory that processes share the file and the place in it.
void key_of(const void* word, std::uint64_t key[2]) {
  if (files::shared_place(word, key)) return;
  key[0] = static_cast<std::uint64_t>(self->process) << 48;
  key[1] = reinterpret_cast<std::uintptr_t>(word);
}

long futex(std::uint32_t* word, int operation, std::uint32_t value, const timespec* span) {
  point("futex");
  const int command = operation & FUTEX_CMD_MASK;
  std::uint64_t key[2];
  key_of(word, key);
  if (command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET)
    return wake_key(key[0], key[1],
                    static_cast<int>(std::min(value, static_cast<std::uint32_t>(INT_MAX))));
  if (command != FUTEX_WAIT && command != FUTEX_WAIT_BITSET) {
    errno = ENOSYS;
    return -1;
  }
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) {
    errno = EAGAIN;
    return -1;
  }
  Time until = kNever;
  if (span != nullptr && command == FUTEX_WAIT) until = world->now + span_of(*span);
  if (span != nullptr && command == FUTEX_WAIT_BITSET)
    until = to_virtual((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC,
                       *span);
  if (faults::interrupts()) {
    errno = EINTR;
    return -1;
  }
  self->key[0] = key[0];
  self->key[1] = key[1];
  if (wait_until(Wait::kKey, until)) return 0;
  errno = ETIMEDOUT;
  return -1;
}

}  // namespace

Time clock_base(clockid_t clock) {
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) return kEpoch;
  return kFirstClock + static_cast<Time>(own_process().host) * kBetweenClocks;
}

Time to_virtual(clockid_t clock, const timespec& moment) {
  const Time at = span_of(moment), base = clock_base(clock);
  return moment.tv_sec < 0 || at < base ? 0 : at - base;
}

std::int32_t virtual_pid(int process) { return kFirstPid + process; }
/// The real number of a virtual one; what is none stays as it is.
std::int32_t real_pid(std::int32_t pid) {
  const int process = pid - kFirstPid;
  if (process < 0 || process >= world->process_count) return pid;
  return world->processes[process].pid;
}

void random_bytes(void* to, std::size_t bytes) {
  Random random{own_process().random};
  auto* at = static_cast<std::byte*>(to);
  for (std::size_t done = 0; done < bytes; done += sizeof(std::uint64_t)) {
    const std::uint64_t word = random.next();
    std::memcpy(at + done, &word, std::min(sizeof(word), bytes - done));
  }
  own_process().random = random.state;
}

}  // namespace tutti::virt

using namespace tutti::virt;  // NOLINT(google-build-using-namespace): the C library's names follow.

extern "C" {

int clock_gettime(clockid_t clock, timespec* to) noexcept {
  if (!active()) return static_cast<int>(raw_errno(SYS_clock_gettime, clock, to));
  if (clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID) {
    *to = {};
    return 0;
  }
  point("clock");
  Time now = clock_base(clock) + world->now;
  if (clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_REALTIME_COARSE) now -= now % kCoarse;
  *to = {static_cast<time_t>(now / kSecond), static_cast<long>(now % kSecond)};
  return 0;
}

int gettimeofday(timeval* __restrict to, void* __restrict zone) noexcept {
  if (!active()) return static_cast<int>(raw_errno(SYS_gettimeofday, to, zone));
  const Time now = kEpoch + world->now;
  *to = {static_cast<time_t>(now / kSecond), static_cast<suseconds_t>(now % kSecond / 1000)};
  return 0;
}

time_t time(time_t* to) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (to != nullptr) *to = now.tv_sec;
  return now.tv_sec;
}

int nanosleep(const timespec* span, timespec* left) {
  if (!active()) return static_cast<int>(raw_errno(SYS_nanosleep, span, left));
  sleep_for(span_of(*span));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* span, timespec* left) {
  if (!active()) return static_cast<int>(-raw(SYS_clock_nanosleep, clock, flags, span, left));
  if ((flags & TIMER_ABSTIME) != 0) {
    const Time until = to_virtual(clock, *span);
    sleep_for(until > world->now ? until - world->now : 0);
  } else {
    sleep_for(span_of(*span));
  }
  return 0;
}

int usleep(useconds_t span) {
  const timespec as{static_cast<time_t>(span / 1'000'000),
                    static_cast<long>(span % 1'000'000) * 1000};
  return nanosleep(&as, nullptr);
}

int sched_yield() noexcept {
  if (!active()) return static_cast<int>(raw_errno(SYS_sched_yield));
  point("yield");
  return 0;
}

pid_t getpid() noexcept {
  if (!active()) return static_cast<pid_t>(raw(SYS_getpid));
  return virtual_pid(self->process);
}

int sched_getcpu() noexcept {
  if (!active()) return TUTTI_REAL(sched_getcpu)();
  return static_cast<int>(world->random.below(static_cast<std::uint64_t>(world->parameters.cpus)));
}

ssize_t getrandom(void* to, std::size_t bytes, unsigned flags) {
  if (!active()) return raw_errno(SYS_getrandom, to, bytes, flags);
  random_bytes(to, bytes);
  return static_cast<ssize_t>(bytes);
}

ssize_t process_vm_readv(pid_t pid, const iovec* local, unsigned long local_count,
                         const iovec* remote, unsigned long remote_count,
                         unsigned long flags) noexcept {
  if (active()) {
    point("readv");
    pid = real_pid(pid);
  }
  return raw_errno(SYS_process_vm_readv, pid, local, local_count, remote, remote_count, flags);
}

ssize_t process_vm_writev(pid_t pid, const iovec* local, unsigned long local_count,
                          const iovec* remote, unsigned long remote_count,
                          unsigned long flags) noexcept {
  if (active()) {
    point("writev");
    pid = real_pid(pid);
  }
  return raw_errno(SYS_process_vm_writev, pid, local, local_count, remote, remote_count, flags);
}

long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long given[6];
  for (long& one : given) one = va_arg(list, long);
  va_end(list);
  if (active()) {
    switch (number) {
      case SYS_futex:
        return futex(reinterpret_cast<std::uint32_t*>(given[0]), static_cast<int>(given[1]),
                     static_cast<std::uint32_t>(given[2]),
                     reinterpret_cast<const timespec*>(given[3]));
      case SYS_membarrier: return 0;  // One thread at a time: there is nothing to order.
      case SYS_sched_setaffinity: return 0;
      case SYS_sched_getaffinity: {
        auto* const words = reinterpret_cast<std::uint64_t*>(given[2]);
        std::memset(words, 0, sizeof(*words));
        words[0] = (std::uint64_t{1} << world->parameters.cpus) - 1;
        return sizeof(*words);
      }
      case SYS_getrandom:
        random_bytes(reinterpret_cast<void*>(given[0]), static_cast<std::size_t>(given[1]));
        return given[1];
      case SYS_pidfd_open:
        point("pidfd");
        given[0] = real_pid(static_cast<std::int32_t>(given[0]));
        break;
      default: break;
    }
  }
  return raw_errno(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

}  // extern "C"
