// File: base/clock.h: clocks for the data path. One costs nothing and has a grain of some
// milliseconds; the other has a grain of a nanosecond and costs an instruction.
#pragma once
#include <time.h>

#include <cstdint>

namespace tutti {

/// Milliseconds since some moment. Any thread.
inline std::int64_t coarse_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Nanoseconds of the clock that all processes of a host share.
inline std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// The CPU's own counter. Its rate is not known here: a reader of ticks compares two pairs of ticks
/// and monotonic_ns. Any thread, no system call. 8 ns to 16 ns in a virtual machine.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(monotonic_ns());
#endif
}

}  // namespace tutti
