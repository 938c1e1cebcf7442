// File: simt/language.h: the additions of the CUDA language to C++, for kernels compiled as plain
// C++: included ahead of a .cu file with `-x c++ -include simt/language.h`.
//
// The toolkit's own headers give the types and the runtime's prototypes. Outside nvcc their
// annotations (__global__, __device__, ...) are empty, and a __shared__ that is defined already is
// kept. Left out on purpose: __activemask, whose value no program's logic determines, and
// cooperative groups, which are empty outside nvcc.
#pragma once
#if defined(__CUDACC__)
#error "language.h is for kernels on the CPU, not for nvcc"
#endif
#define TUTTI_SIMT 1
// A block is a thread of the operating system: what is static there is the block's.
#define __shared__ static __thread
// What the kernels of a file say, for how many of their blocks a device runs at a time.
#define __launch_bounds__(...)
#ifndef TUTTI_SIMT_LAUNCH_BOUND
#define TUTTI_SIMT_LAUNCH_BOUND 1024
#endif
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "simt/engine.h"

extern __thread uint3 threadIdx, blockIdx;
extern __thread dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// A namespace of its own, so that kernels do not see all names of the engine.
namespace tutti::simt::language {

inline void __syncthreads(Place place = Place::here()) { barrier(0, 0, place); }
inline int __syncthreads_and(int predicate, Place place = Place::here()) {
  return barrier_vote(predicate, Vote::kAnd, place);
}
inline int __syncthreads_or(int predicate, Place place = Place::here()) {
  return barrier_vote(predicate, Vote::kOr, place);
}
inline int __syncthreads_count(int predicate, Place place = Place::here()) {
  return barrier_vote(predicate, Vote::kCount, place);
}
inline void __syncwarp(unsigned mask = ~0u) { warp_exchange(mask, 0, WarpOp::kSync); }
inline void __threadfence_block() { fence(); }
inline void __threadfence() { fence(); }
inline void __threadfence_system() { fence(); }
inline void __nanosleep(unsigned) { yield_point(); }
[[noreturn]] inline void __trap() { die("__trap"); }

template <class T>
std::uint64_t to_word(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}
template <class T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

inline int __ffs(int value) { return __builtin_ffs(value); }

/// The value that lane `from(lane, first lane of its segment, one past the last)` left.
template <class T, class From>
T shuffle(unsigned mask, T value, int width, From from) {
  const WarpValues values = warp_exchange(mask, to_word(value), WarpOp::kShuffle);
  const int lane = static_cast<int>(current->lane);
  const int first = lane & ~(width - 1);
  const int source = from(lane, first, first + width);
  if ((mask >> source & 1) == 0) die("lane %d reads lane %d, not of mask %08x", lane, source, mask);
  return from_word<T>(values.of_lane[source]);
}

template <class Predicate>
unsigned lanes_with(unsigned mask, const WarpValues& values, Predicate predicate) {
  unsigned lanes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && predicate(values.of_lane[lane])) lanes |= 1u << lane;
  }
  return lanes;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return shuffle(mask, value, width,
                 [=](int, int first, int) { return first | (source & (width - 1)); });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return shuffle(mask, value, width, [=](int lane, int first, int) {
    const int source = lane - static_cast<int>(delta);
    return source < first ? lane : source;
  });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  return shuffle(mask, value, width, [=](int lane, int, int end) {
    const int source = lane + static_cast<int>(delta);
    return source >= end ? lane : source;
  });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  return shuffle(mask, value, width, [=](int lane, int, int end) {
    const int source = lane ^ lanes;
    return source >= end ? lane : source;
  });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const auto values = warp_exchange(mask, predicate != 0 ? 1 : 0, WarpOp::kVote);
  return lanes_with(mask, values, [](std::uint64_t vote) { return vote != 0; });
}
inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) == mask ? 1 : 0;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value) {
  const std::uint64_t mine = to_word(value);
  const auto values = warp_exchange(mask, mine, WarpOp::kMatch);
  return lanes_with(mask, values, [=](std::uint64_t other) { return other == mine; });
}

// Atomics: relaxed, as CUDA's are.
template <class T, class Change>
T read_modify_write(T* at, Change change, Scope scope = Scope::kDevice) {
  using Word = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(Word) == sizeof(T));
  auto* word = reinterpret_cast<Word*>(at);
  if (settings().check) check_access(at, sizeof *at, scope, true);
  yield_point();
  before_relaxed_store(at);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const T before = from_word<T>(old);
    const Word after = static_cast<Word>(to_word(static_cast<T>(change(before))));
    if (__atomic_compare_exchange_n(word, &old, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      after_relaxed_load(at);
      note_progress();
      return before;
    }
  }
}

template <class T>
T atomicAdd(T* at, T value) {
  return read_modify_write(at, [=](T old) { return old + value; });
}
template <class T>
T atomicAdd_system(T* at, T value) {
  return read_modify_write(
      at, [=](T old) { return old + value; }, Scope::kSystem);
}
template <class T>
T atomicMax(T* at, T value) {
  return read_modify_write(at, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicExch(T* at, T value) {
  return read_modify_write(at, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* at, T expected, T value) {
  return read_modify_write(at, [=](T old) { return old == expected ? value : old; });
}

}  // namespace tutti::simt::language
using namespace tutti::simt::language;

// Kernels, as handles for cudaLaunchKernel.
namespace tutti::simt {

template <class... Parameters>
struct Packed {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                "a kernel's arguments are copied byte by byte");
  using Tuple = std::tuple<Parameters...>;
  template <std::size_t... index>
  static void pack(void** arguments, void* packed, std::index_sequence<index...>) {
    new (packed) Tuple(*static_cast<Parameters*>(arguments[index])...);
  }
  static void pack_all(void** arguments, void* packed) {
    pack(arguments, packed, std::index_sequence_for<Parameters...>{});
  }
  static void invoke(const void* function, void* packed) {
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
               *static_cast<Tuple*>(packed));
  }
};

template <class... Parameters>
const void* kernel_handle(void (*kernel)(Parameters...), const char* name,
                          int most_threads = 1024) {
  using Pack = Packed<std::remove_const_t<Parameters>...>;
  return register_kernel({reinterpret_cast<const void*>(kernel), name, sizeof(typename Pack::Tuple),
                          &Pack::pack_all, &Pack::invoke, most_threads,
                          registers_by_bound(most_threads)});
}

}  // namespace tutti::simt

#include "simt/prim.h"
