// File: litmus/language.h: what tutti/detail/prim.h offers, for the litmus tests: the same
// functions, which record events instead of doing something. Included ahead of kernels' headers.
//
// So the protocols that are checked are kernels' own functions (channel.h, meeting.h, one_shot.h),
// with the orders that these have. Memory that threads share are the program's locations; all other
// memory is the thread's own and is accessed as it is. Each order can be left out at its place
// (Recorder::is_without).
//
// Packed lines. Each half, 8 bytes of data and flag, is one event: that is not promised by PTX,
// whose vector accesses are of their elements one by one, but of the hardware, as NCCL's protocol
// LL needs it too; scripts/sass-lint checks that lines are one access. With `torn` data and flag
// are events of their own.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

#include "litmus/explore.h"
#include "tutti/types.h"

#define TUTTI_SIMT 1
#define TUTTI_DEVICE inline
#define TUTTI_DEVICE_COLD inline
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)

struct LitmusIndex {
  unsigned x = 0, y = 0, z = 0;
};
inline LitmusIndex threadIdx, blockIdx, blockDim{1, 1, 1}, gridDim{1, 1, 1};

namespace tutti::cuda {

using litmus::Order;
using litmus::Place;
using litmus::recorder;
using litmus::Scope;

struct alignas(16) Vector16 {
  std::uint32_t word[4];
};

inline bool torn = false;     // Packed lines arrive word by word.
inline bool reloads = false;  // acquire() is another load, as before sm_90; else a fence.

namespace detail {

/// A strong or weak read of `at`, or of the thread's own memory.
template <class T>
T read(const void* at, Order order) {
  T value;
  const int location = recorder->location(at, sizeof(T));
  if (location < 0) {
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  const std::uint64_t bits = recorder->read(static_cast<unsigned>(location), order, Scope::kSystem);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
void write(void* at, T value, Order order) {
  const int location = recorder->location(at, sizeof(T));
  if (location < 0) {
    std::memcpy(at, &value, sizeof value);
    return;
  }
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  recorder->write(static_cast<unsigned>(location), bits, order, Scope::kSystem);
}

}  // namespace detail

// Flags.
inline std::uint64_t load_relaxed(const std::uint64_t* at) {
  return detail::read<std::uint64_t>(at, Order::kRelaxed);
}
inline std::uint64_t load_acquire(const std::uint64_t* at, Place place = Place::here()) {
  const bool without = recorder->is_without(litmus::place_name("no_acquire", place));
  return detail::read<std::uint64_t>(at, without ? Order::kRelaxed : Order::kAcquire);
}
inline void acquire(const std::uint64_t* at, Place place = Place::here()) {
  if (recorder->is_without(litmus::place_name("no_acquire", place))) return;
  if (!reloads) return recorder->fence(Order::kAcquire, Scope::kSystem);
  recorder->end_poll();
  detail::read<std::uint64_t>(at, Order::kAcquire);
}
inline void store_relaxed(std::uint64_t* at, std::uint64_t value) {
  detail::write(at, value, Order::kRelaxed);
}
inline void store_release(std::uint64_t* at, std::uint64_t value, Place place = Place::here()) {
  const bool without = recorder->is_without(litmus::place_name("no_release", place));
  detail::write(at, value, without ? Order::kRelaxed : Order::kRelease);
}
/// In memory of the thread's own alone.
inline std::uint64_t exchange(std::uint64_t* at, std::uint64_t value) {
  return std::exchange(*at, value);
}
inline std::uint64_t add(std::uint64_t* at, std::uint64_t value) {
  const std::uint64_t before = *at;
  *at += value;
  return before;
}
inline bool waits(Place place = Place::here()) {
  return !recorder->is_without(litmus::place_name("no_wait", place));
}

// Bulk data, weak. What is longer than a location is the thread's own.
template <class T>
T load(const void* at) {
  if constexpr (sizeof(T) <= 8) {
    return detail::read<T>(at, Order::kWeak);
  } else {
    return *static_cast<const T*>(at);
  }
}
template <class T>
void store(void* at, T value) {
  if constexpr (sizeof(T) <= 8) {
    detail::write(at, value, Order::kWeak);
  } else {
    *static_cast<T*>(at) = value;
  }
}
template <DataType type>
void widen_pair(std::uint32_t, float&, float&) {}
template <DataType type>
std::uint32_t round_pair(float, float) {
  return 0;
}

// Packed lines: volatile accesses, which are relaxed ones of system scope.
inline void store_packed(void* line, std::uint32_t low, std::uint32_t high, std::uint32_t flag,
                         std::uint32_t second_flag) {
  const std::uint32_t words[4] = {low, flag, high, second_flag};
  auto* at = static_cast<std::uint32_t*>(line);
  for (unsigned half = 0; half < 2; ++half) {
    const std::uint32_t data = words[half * 2], its_flag = words[half * 2 + 1];
    if (torn) {
      detail::write(at + half * 2, data, Order::kRelaxed);
      detail::write(at + half * 2 + 1, its_flag, Order::kRelaxed);
    } else {
      detail::write(at + half * 2, data | std::uint64_t{its_flag} << 32, Order::kRelaxed);
    }
  }
}
inline Vector16 load_halves(const void* line) {
  Vector16 halves{};
  const auto* at = static_cast<const std::uint32_t*>(line);
  for (unsigned half = 0; half < 2; ++half) {
    if (torn) {
      halves.word[half * 2 + 1] = detail::read<std::uint32_t>(at + half * 2 + 1, Order::kRelaxed);
      halves.word[half * 2] = detail::read<std::uint32_t>(at + half * 2, Order::kRelaxed);
    } else {
      const auto both = detail::read<std::uint64_t>(at + half * 2, Order::kRelaxed);
      halves.word[half * 2] = static_cast<std::uint32_t>(both);
      halves.word[half * 2 + 1] = static_cast<std::uint32_t>(both >> 32);
    }
  }
  return halves;
}
inline bool load_packed(const void* line, std::uint32_t flag, std::uint32_t second_flag,
                        std::uint32_t& low, std::uint32_t& high, Place place = Place::here()) {
  const Vector16 halves = load_halves(line);
  low = halves.word[0];
  high = halves.word[2];
  const auto left_out = [&place](const char* what) {
    return recorder->is_without(litmus::place_name(what, place));
  };
  const bool first = left_out("no_first_flag") || halves.word[1] == flag;
  const bool second = left_out("no_second_flag") || halves.word[3] == second_flag;
  return first && second;
}
// The line format has no litmus test: it rests on a warp's store arriving whole.
inline void store_line(void*, Vector16, bool, std::uint64_t) {}
inline bool load_line(const void*, bool, std::uint64_t, Vector16&) { return true; }

// A warp of one thread, and the block.
inline void __syncwarp() {}
inline int __any_sync(unsigned, int value) { return value; }
template <class T>
T __shfl_sync(unsigned, T value, unsigned) {
  return value;
}
inline bool sync_block_or(bool value, Place place = Place::here()) {
  if (blockDim.x > 1) recorder->barrier(litmus::place_name("no_barrier", place));
  return value;
}
inline std::uint64_t now_ns() { return 0; }

}  // namespace tutti::cuda
