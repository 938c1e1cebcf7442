// File: base/clock.h: a clock for what is far longer than its grain of some milliseconds, and that
// costs nothing.
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

}  // namespace tutti
