// File: tutti/detail/prim.h: what kernels ask of the hardware: flags with memory order, packed
// lines, the block's barrier. The only file with PTX, and the only one that knows for what it is
// compiled.
//
// On a CPU the same functions come from simt (docs/simulated-gpus.md), so a kernel that keeps
// to them is tested there. Rules for kernels: every wait polls through a function of this file; no
// __device__ variables (simulated devices would share them); no implied order within a warp;
// arguments are copied byte by byte.
//
// Memory order is that of PTX (ISA, "Memory consistency model"). Flags are read and written at
// system scope, as peers are other devices or the host. Bulk data are plain accesses: a thread's
// release, after the block's barrier, covers what all threads of the block wrote.
#pragma once
#if defined(TUTTI_SIMT)
// simt/language.h was included ahead of all else, with simt/prim.h.
#elif !defined(__CUDACC__)
#error "for nvcc, or for the simulator: -include simt/language.h"
#else
#include <cuda_runtime.h>

#include <cstdint>

#include "tutti/types.h"

#define TUTTI_DEVICE __device__ __forceinline__
#define TUTTI_DEVICE_COLD inline __device__ __noinline__
#define TUTTI_KERNEL_HANDLE(...) (reinterpret_cast<const void*>(__VA_ARGS__))

namespace tutti::cuda {

/// The data that one thread moves with one access.
struct alignas(16) Vector16 {
  std::uint32_t word[4];
};

// Flags. Like all data they are in global memory, which has instructions of its own.
TUTTI_DEVICE std::uint64_t global(const void* at) { return __cvta_generic_to_global(at); }
TUTTI_DEVICE std::uint64_t load_relaxed(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(at)) : "memory");
  return value;
}
TUTTI_DEVICE std::uint64_t load_acquire(const std::uint64_t* at) {
  std::uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(global(at)) : "memory");
  return value;
}
/// Makes the flag that load_relaxed has just read at `at` acquired: what its writer released is
/// seen from here on. So a wait polls relaxed, and only its end empties L1. From sm_90 on that is
/// no access at all; before, the only fence there is would wait for this thread's writes too.
TUTTI_DEVICE void acquire(const std::uint64_t* at) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && \
    __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1208
  asm volatile("fence.acquire.sys;" ::: "memory");
#else
  load_acquire(at);
#endif
}
TUTTI_DEVICE void store_relaxed(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(global(at)), "l"(value) : "memory");
}
TUTTI_DEVICE void store_release(std::uint64_t* at, std::uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(global(at)), "l"(value) : "memory");
}
/// Writes the value and returns what was there, in memory of this device. Relaxed: kernels of one
/// rank run one after the other, or fail.
TUTTI_DEVICE std::uint64_t exchange(std::uint64_t* at, std::uint64_t value) {
  std::uint64_t before;
  asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(global(at)), "l"(value)
               : "memory");
  return before;
}
/// Adds to a word in memory of this device and returns what was there. Relaxed: accesses to one
/// word have an order anyway, and it is of no other memory.
TUTTI_DEVICE std::uint64_t add(std::uint64_t* at, std::uint64_t value) {
  std::uint64_t before;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(before)
               : "l"(global(at)), "l"(value)
               : "memory");
  return before;
}
/// Always true; the simulator may plant a bug in which no thread waits.
TUTTI_DEVICE bool waits() { return true; }

// Bulk data, which is never in shared memory: what is known of that stays in registers.
template <class T>
TUTTI_DEVICE T load(const void* at) {
  __builtin_assume(__isGlobal(at));
  return *static_cast<const T*>(at);
}
template <class T>
TUTTI_DEVICE void store(void* at, T value) {
  __builtin_assume(__isGlobal(at));
  *static_cast<T*>(at) = value;
}

// Two 16-bit floats (float16 or bfloat16) of a word, low first, to and from float32: exact, and to
// nearest, ties to even. With subnormals, infinities for what is too large, and the NaN that
// arithmetic makes: the bits of tutti/detail/numeric.h, in an instruction or two instead of dozens.
template <DataType type>
TUTTI_DEVICE void widen_pair(std::uint32_t word, float& low, float& high) {
  if constexpr (type == DataType::kFloat16) {
    asm("{.reg .f16 l, h;\n\t"
        "mov.b32 {l, h}, %2;\n\t"
        "cvt.f32.f16 %0, l;\n\t"
        "cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high)
        : "r"(word));
  } else {
    low = __uint_as_float(word << 16);
    high = __uint_as_float(word & 0xffff0000u);
  }
}
template <DataType type>
TUTTI_DEVICE std::uint32_t round_pair(float low, float high) {
  std::uint32_t word;
  if constexpr (type == DataType::kFloat16) {
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(low), "f"(high));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(low), "f"(high));
  }
  return word;
}

// Packed lines of 16 bytes: two halves, each 4 bytes of data and 4 of flag. Each half arrives
// whole, so data and flag need no order between them.
TUTTI_DEVICE void store_packed(void* line, std::uint32_t low, std::uint32_t high,
                               std::uint32_t flag, std::uint32_t second_flag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(global(line)), "r"(low),
               "r"(flag), "r"(high), "r"(second_flag)
               : "memory");
}
/// A line's two halves as they lie in memory: data, flag, data, flag.
TUTTI_DEVICE Vector16 load_halves(const void* line) {
  Vector16 halves;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(halves.word[0]), "=r"(halves.word[1]), "=r"(halves.word[2]),
                 "=r"(halves.word[3])
               : "l"(global(line))
               : "memory");
  return halves;
}
/// True if both halves have their flags; then `low` and `high` are the data.
TUTTI_DEVICE bool load_packed(const void* line, std::uint32_t flag, std::uint32_t second_flag,
                              std::uint32_t& low, std::uint32_t& high) {
  const Vector16 halves = load_halves(line);
  low = halves.word[0];
  high = halves.word[2];
  // No branch, so that the load of the next line begins early.
  return (halves.word[1] == flag) & (halves.word[3] == second_flag);
}

// Lines of 128 bytes: 8 lanes with 16 bytes each, of which the last has the flag. All lanes of the
// warp call. A warp's store of 128 aligned bytes arrives whole over NVLink (not over PCIe): that is
// no promise of PTX, and what NCCL's protocol LL128 rests on too.
TUTTI_DEVICE void store_line(void* at, Vector16 data, bool flag_lane, std::uint64_t flag) {
  const std::uint64_t low =
      flag_lane ? 0 : std::uint64_t{data.word[0]} | std::uint64_t{data.word[1]} << 32;
  const std::uint64_t high =
      flag_lane ? flag : std::uint64_t{data.word[2]} | std::uint64_t{data.word[3]} << 32;
  asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};" ::"l"(global(at)), "l"(low), "l"(high)
               : "memory");
}
/// True in all lanes if all lines of the warp have the flag; the data then.
TUTTI_DEVICE bool load_line(const void* at, bool flag_lane, std::uint64_t flag, Vector16& data) {
  std::uint64_t low, high;
  asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(global(at))
               : "memory");
  if (__all_sync(~0u, !flag_lane || high == flag) == 0) return false;
  data = {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
           static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
  return true;
}

// Multicast memory: an address that stands for one in each device of a group (NVLink SHARP, sm_90
// and later). The switch adds in an order of its own, so sums are of the relaxed contract.
// Addresses are of 16 bytes; members' own addresses of the same memory are aliases, which
// fence_alias orders.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define TUTTI_MULTIMEM(...) asm volatile(__VA_ARGS__)
#else
#define TUTTI_MULTIMEM(...) __trap()
#endif
/// Sums of all members' numbers there, 16 bytes of them; accumulated in float32.
template <DataType type>
TUTTI_DEVICE Vector16 multimem_add(const void* at);
#define TUTTI_MULTIMEM_ADD(type, suffix)                                                        \
  template <>                                                                                   \
  TUTTI_DEVICE Vector16 multimem_add<DataType::type>(const void* at) {                          \
    Vector16 sum = {};                                                                          \
    TUTTI_MULTIMEM("multimem.ld_reduce.relaxed.sys.global.add." suffix " {%0,%1,%2,%3}, [%4];"  \
                   : "=r"(sum.word[0]), "=r"(sum.word[1]), "=r"(sum.word[2]), "=r"(sum.word[3]) \
                   : "l"(at)                                                                    \
                   : "memory");                                                                 \
    return sum;                                                                                 \
  }
TUTTI_MULTIMEM_ADD(kFloat32, "v4.f32")
TUTTI_MULTIMEM_ADD(kFloat16, "acc::f32.v4.f16x2")
TUTTI_MULTIMEM_ADD(kBfloat16, "acc::f32.v4.bf16x2")
#undef TUTTI_MULTIMEM_ADD
/// To all members.
TUTTI_DEVICE void multimem_store(void* at, Vector16 data) {
  TUTTI_MULTIMEM("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(at),
                 "r"(data.word[0]), "r"(data.word[1]), "r"(data.word[2]), "r"(data.word[3])
                 : "memory");
}
#undef TUTTI_MULTIMEM
/// Orders this thread's accesses to the same memory by different addresses.
TUTTI_DEVICE void fence_alias() { asm volatile("fence.proxy.alias;" ::: "memory"); }

// The block, and time.
/// All threads of the block meet; true in all of them if the argument is in any.
TUTTI_DEVICE bool sync_block_or(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }
TUTTI_DEVICE std::uint64_t now_ns() {
  std::uint64_t value;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
  return value;
}

}  // namespace tutti::cuda
#endif
