// File: simt/nvcc/atomics.h: CUDA's atomic functions for programs' kernels, with the types that
// CUDA has, so that arguments are converted as there. Relaxed, as CUDA's are.
//
// A thread whose atomic changes nothing waits for another one, as a rule: there the engine lets
// others run. Without that, a lock that threads of one block take would never be free.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "simt/language.h"

namespace tutti::simt::nvcc {

template <std::size_t bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = std::uint64_t;
};

template <class T, class Change>
T update(T* at, Change change) {
  using Word = typename WordOf<sizeof(T)>::Type;
  auto* const word = reinterpret_cast<Word*>(at);
  if (settings().check) check_access(at, sizeof *at, Scope::kSystem, true);
  yield_point();
  before_relaxed_store(at);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  Word after = 0;
  T before{};
  do {
    std::memcpy(static_cast<void*>(&before), &old, sizeof old);
    const T changed = change(before);
    std::memcpy(&after, &changed, sizeof after);
  } while (
      !__atomic_compare_exchange_n(word, &old, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  after_relaxed_load(at);
  if (after == old) {
    poll_point(at);
  } else {
    note_progress();
  }
  return before;
}

}  // namespace tutti::simt::nvcc

// A function of `type`, also for the scopes of a block and of the system.
#define TUTTI_SIMT_ATOMIC(name, type, change)                                                    \
  inline type name(type* at, type value) {                                                       \
    return ::tutti::simt::nvcc::update(at,                                                       \
                                       [value](type old) { return static_cast<type>(change); }); \
  }                                                                                              \
  inline type name##_block(type* at, type value) { return name(at, value); }                     \
  inline type name##_system(type* at, type value) { return name(at, value); }
#define TUTTI_SIMT_ATOMIC_INTEGERS(name, change) \
  TUTTI_SIMT_ATOMIC(name, int, change)           \
  TUTTI_SIMT_ATOMIC(name, unsigned, change)      \
  TUTTI_SIMT_ATOMIC(name, unsigned long long, change)
#define TUTTI_SIMT_ATOMIC_CAS(type)                                                              \
  inline type atomicCAS(type* at, type expected, type value) {                                   \
    return ::tutti::simt::nvcc::update(at,                                                       \
                                       [=](type old) { return old == expected ? value : old; }); \
  }                                                                                              \
  inline type atomicCAS_block(type* at, type expected, type value) {                             \
    return atomicCAS(at, expected, value);                                                       \
  }                                                                                              \
  inline type atomicCAS_system(type* at, type expected, type value) {                            \
    return atomicCAS(at, expected, value);                                                       \
  }

TUTTI_SIMT_ATOMIC_INTEGERS(atomicAdd, old + value)
TUTTI_SIMT_ATOMIC(atomicAdd, float, old + value)
TUTTI_SIMT_ATOMIC(atomicAdd, double, old + value)
TUTTI_SIMT_ATOMIC(atomicAdd, __half, __hadd(old, value))
TUTTI_SIMT_ATOMIC(atomicAdd, __half2, __hadd2(old, value))
TUTTI_SIMT_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(old, value))
TUTTI_SIMT_ATOMIC(atomicAdd, __nv_bfloat162, __hadd2(old, value))
TUTTI_SIMT_ATOMIC(atomicSub, int, old - value)
TUTTI_SIMT_ATOMIC(atomicSub, unsigned, old - value)
TUTTI_SIMT_ATOMIC_INTEGERS(atomicExch, (static_cast<void>(old), value))
TUTTI_SIMT_ATOMIC(atomicExch, float, (static_cast<void>(old), value))
TUTTI_SIMT_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
TUTTI_SIMT_ATOMIC(atomicMin, long long, old < value ? old : value)
TUTTI_SIMT_ATOMIC_INTEGERS(atomicMax, old < value ? value : old)
TUTTI_SIMT_ATOMIC(atomicMax, long long, old < value ? value : old)
TUTTI_SIMT_ATOMIC_INTEGERS(atomicAnd, old& value)
TUTTI_SIMT_ATOMIC_INTEGERS(atomicOr, old | value)
TUTTI_SIMT_ATOMIC_INTEGERS(atomicXor, old ^ value)
TUTTI_SIMT_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
TUTTI_SIMT_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
TUTTI_SIMT_ATOMIC_CAS(int)
TUTTI_SIMT_ATOMIC_CAS(unsigned)
TUTTI_SIMT_ATOMIC_CAS(unsigned long long)
TUTTI_SIMT_ATOMIC_CAS(unsigned short)

#undef TUTTI_SIMT_ATOMIC
#undef TUTTI_SIMT_ATOMIC_INTEGERS
#undef TUTTI_SIMT_ATOMIC_CAS
