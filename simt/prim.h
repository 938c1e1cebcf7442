// File: simt/prim.h: the simulator's side of tutti/detail/prim.h: the same functions, on a CPU.
//
// Flags are atomics and scheduling points. Bulk data are plain accesses, on purpose: then the
// thread sanitizer reports any that flags and barriers do not order, which on x86 would show in no
// test's data. Primitives are as unkind as hardware may be: the halves of a packed line are written
// in either order, and threads give way between them.
//
// Each takes the place of its caller, so that a test may leave out the ordering there (Mistake).
#pragma once
#include <chrono>
#include <cstdint>
#include <cstring>

#include "simt/engine.h"
#include "tutti/detail/reduce_op.h"

#define TUTTI_DEVICE inline
#define TUTTI_DEVICE_COLD inline
#define TUTTI_KERNEL_HANDLE(...) \
  (::tutti::simt::kernel_handle(__VA_ARGS__, #__VA_ARGS__, TUTTI_SIMT_LAUNCH_BOUND))

namespace tutti::cuda {

struct alignas(16) Vector16 {
  std::uint32_t word[4];
};

using simt::Mistake;
using simt::Place;

inline void checked(const void* at, std::size_t bytes, bool flag) {
  if (simt::settings().check) simt::check_access(at, bytes, simt::Scope::kSystem, flag);
}

// Flags.
inline std::uint64_t load_relaxed(const std::uint64_t* at) {
  checked(at, sizeof *at, true);
  simt::poll_point(at);
  const std::uint64_t value = __atomic_load_n(at, __ATOMIC_RELAXED);
  simt::after_relaxed_load(at);
  return value;
}
inline std::uint64_t load_acquire(const std::uint64_t* at, Place place = Place::here()) {
  if (simt::planted(Mistake::kNoAcquire, place)) {
    simt::poll_point(at);
    return __atomic_load_n(at, __ATOMIC_RELAXED);
  }
  checked(at, sizeof *at, true);
  simt::poll_point(at);
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
inline void acquire(const std::uint64_t* at, Place place = Place::here()) {
  if (!simt::planted(Mistake::kNoAcquire, place)) __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
inline void store_relaxed(std::uint64_t* at, std::uint64_t value) {
  checked(at, sizeof *at, true);
  simt::yield_point();
  simt::before_relaxed_store(at);
  if (!simt::loses_write(at, sizeof *at)) __atomic_store_n(at, value, __ATOMIC_RELAXED);
  simt::note_progress();
}
inline void store_release(std::uint64_t* at, std::uint64_t value, Place place = Place::here()) {
  checked(at, sizeof *at, true);
  simt::yield_point();
  if (simt::loses_write(at, sizeof *at)) return;
  if (simt::planted(Mistake::kNoRelease, place)) {
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
  } else {
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
  }
  simt::note_progress();
}

inline std::uint64_t exchange(std::uint64_t* at, std::uint64_t value) {
  checked(at, sizeof *at, true);
  simt::yield_point();
  return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}

inline std::uint64_t add(std::uint64_t* at, std::uint64_t value) {
  checked(at, sizeof *at, true);
  simt::yield_point();
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

// Whether to wait at all: a test may plant that nobody does.
inline bool waits(Place place = Place::here()) { return !simt::planted(Mistake::kNoWait, place); }

// Bulk data.
template <class T>
T load(const void* at) {
  checked(at, sizeof(T), false);
  simt::yield_point();
  return *static_cast<const T*>(at);
}
template <class T>
void store(void* at, T value) {
  checked(at, sizeof(T), false);
  if (!simt::loses_write(at, sizeof(T))) *static_cast<T*>(at) = value;
  simt::yield_point();
}

// Pairs of 16-bit floats.
template <DataType type>
void widen_pair(std::uint32_t word, float& low, float& high) {
  using Element = kernels::Element<type>;
  low = Element::widen({static_cast<std::uint16_t>(word)});
  high = Element::widen({static_cast<std::uint16_t>(word >> 16)});
}
template <DataType type>
std::uint32_t round_pair(float low, float high) {
  using Element = kernels::Element<type>;
  return std::uint32_t{Element::round(low).bits} | std::uint32_t{Element::round(high).bits} << 16;
}

// Packed lines: two halves of 8 bytes, each 4 bytes of data and 4 of flag, and each arriving whole.
inline void store_packed(void* line, std::uint32_t low, std::uint32_t high, std::uint32_t flag,
                         std::uint32_t second_flag) {
  checked(line, 16, true);
  auto* half = static_cast<std::uint64_t*>(line);
  const std::uint64_t halves[2] = {low | std::uint64_t{flag} << 32,
                                   high | std::uint64_t{second_flag} << 32};
  const int first = simt::coin() ? 1 : 0;
  __atomic_store_n(half + first, halves[first], __ATOMIC_RELAXED);
  simt::yield_point();
  __atomic_store_n(half + (1 - first), halves[1 - first], __ATOMIC_RELAXED);
  simt::note_progress();
}
/// A line's two halves as they lie in memory: data, flag, data, flag.
inline Vector16 load_halves(const void* line) {
  checked(line, 16, true);
  simt::yield_point();
  const auto* half = static_cast<const std::uint64_t*>(line);
  const std::uint64_t first = __atomic_load_n(half, __ATOMIC_RELAXED);
  simt::yield_point();
  const std::uint64_t second = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
  return {{static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32),
           static_cast<std::uint32_t>(second), static_cast<std::uint32_t>(second >> 32)}};
}
/// True if both halves have their flags; then `low` and `high` are the data.
inline bool load_packed(const void* line, std::uint32_t flag, std::uint32_t second_flag,
                        std::uint32_t& low, std::uint32_t& high, Place place = Place::here()) {
  const Vector16 halves = load_halves(line);
  low = halves.word[0];
  high = halves.word[2];
  // Whether to look is asked first, so that both are listed wherever a line is polled.
  const bool first = simt::planted(Mistake::kNoFirstFlag, place) || halves.word[1] == flag;
  const bool second = simt::planted(Mistake::kNoSecondFlag, place) || halves.word[3] == second_flag;
  const bool there = first && second;
  if (!there) simt::poll_point(line);
  return there;
}

// Lines of 128 bytes, 8 lanes each with 16 bytes, of which the last has the flag. All lanes of the
// warp call. On some GPUs a warp's store of such a line arrives whole; here that is a barrier
// between the data and the flag, and the test's canary is that it is needed. On others
// (Settings::tears_lines) the flag comes first, and the data may come late.
inline void store_line(void* at, Vector16 data, bool flag_lane, std::uint64_t flag,
                       Place place = Place::here()) {
  checked(at, 16, flag_lane);
  const auto store_part = [&] {
    if (!flag_lane) return store(at, data);
    const bool ordered = !simt::planted(Mistake::kNoRelease, place);
    __atomic_store_n(static_cast<std::uint64_t*>(at) + 1, flag,
                     ordered ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
    simt::note_progress();
  };
  const bool torn = simt::settings().tears_lines;
  if (flag_lane == torn) store_part();
  __syncwarp();
  if (flag_lane == torn) return;
  if (torn) simt::late_point();
  store_part();
}
/// True in all lanes if all lines of the warp have the flag; the data then.
inline bool load_line(const void* at, bool flag_lane, std::uint64_t flag, Vector16& data,
                      Place place = Place::here()) {
  checked(at, 16, flag_lane);
  bool there = true;
  if (flag_lane) {
    simt::yield_point();
    const bool ordered = !simt::planted(Mistake::kNoAcquire, place);
    const std::uint64_t found = __atomic_load_n(static_cast<const std::uint64_t*>(at) + 1,
                                                ordered ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED);
    there = simt::planted(Mistake::kNoFirstFlag, place) || found == flag;
    if (!there) simt::poll_point(at);
  }
  if (__all_sync(~0u, there ? 1 : 0) == 0) return false;
  __syncwarp();
  if (!flag_lane) data = load<Vector16>(at);
  return true;
}

// Multicast memory (runtime_driver.cc has it): members' memory, in the order of their devices. What
// a block stores there is only seen by members' own addresses after a fence. So where a test leaves
// that out, what was stored since the last one is undone.
// A block's threads take turns here, so there is nothing for the sanitizer to see.
struct AliasStores {
  static constexpr unsigned kMost = 512;
  unsigned count = 0;
  struct {
    void* at;
    Vector16 before;
  } of[kMost] = {};

  __attribute__((noinline, no_sanitize("thread"))) void add(void* at, const Vector16& before) {
    if (count < kMost) of[count++] = {at, before};
  }
  __attribute__((noinline, no_sanitize("thread"))) void end(bool undone) {
    for (unsigned i = 0; undone && i < count; ++i) *static_cast<Vector16*>(of[i].at) = of[i].before;
    count = 0;
  }
};
inline constinit thread_local AliasStores alias_stores;  // The block's.
template <DataType type>
Vector16 multimem_add(const void* at) {
  using Element = kernels::Element<type>;
  using Storage = typename Element::Storage;
  constexpr std::size_t kElements = sizeof(Vector16) / sizeof(Storage);
  const simt::Members members = simt::multicast_members(at, sizeof(Vector16));
  float sums[kElements] = {};
  for (unsigned member = 0; member < members.count; ++member) {
    simt::yield_point();
    for (std::size_t e = 0; e < kElements; ++e) {
      const float value = Element::widen(static_cast<const Storage*>(members.at[member])[e]);
      sums[e] = member == 0 ? value : sums[e] + value;
    }
  }
  Storage rounded[kElements];
  for (std::size_t e = 0; e < kElements; ++e) rounded[e] = Element::round(sums[e]);
  Vector16 sum;
  std::memcpy(&sum, rounded, sizeof sum);
  return sum;
}
inline void multimem_store(void* at, Vector16 data) {
  const simt::Members members = simt::multicast_members(at, sizeof data);
  for (unsigned member = 0; member < members.count; ++member) {
    auto* const to = static_cast<Vector16*>(members.at[member]);
    alias_stores.add(to, *to);
    *to = data;
    simt::yield_point();
  }
}
inline void fence_alias(Place place = Place::here()) {
  alias_stores.end(simt::planted(Mistake::kNoAliasFence, place));
}

// The block, and time.
inline bool sync_block_or(bool value, Place place = Place::here()) {
  return simt::barrier_vote(value ? 1 : 0, simt::Vote::kOr, place) != 0;
}
inline std::uint64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(since).count());
}

}  // namespace tutti::cuda
