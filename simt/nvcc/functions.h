// File: simt/nvcc/functions.h: device functions of CUDA beyond those that Tutti's kernels use
// (simt/language.h): arithmetic, bits, loads with hints, collectives of a warp, time.
//
// Approximate functions (__expf, __fdividef) are the exact ones here.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <type_traits>

#include "simt/language.h"

namespace tutti::simt::nvcc {

template <class A, class B>
inline constexpr bool both_numbers = std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>;

/// What a signed and an unsigned argument have in common, as in C.
template <class A, class B>
using Common = std::common_type_t<A, B>;

/// An operation over the values of all lanes of a mask.
template <class T, class Combine>
T reduce_warp(unsigned mask, T value, Combine combine) {
  const WarpValues values = warp_exchange(mask, to_word(value), WarpOp::kReduce);
  bool first = true;
  T result{};
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const T one = from_word<T>(values.of_lane[lane]);
    result = first ? one : combine(result, one);
    first = false;
  }
  return result;
}

/// A pair of 16-bit floats as one word, and back.
template <class Pair>
unsigned bits_of(const Pair& pair) {
  unsigned bits = 0;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}
template <class Pair>
Pair pair_of(unsigned bits) {
  Pair pair;
  std::memcpy(static_cast<void*>(&pair), &bits, sizeof bits);
  return pair;
}

inline long long nanoseconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace tutti::simt::nvcc

// On both sides, as with nvcc.
template <class A, class B>
requires tutti::simt::nvcc::both_numbers<A, B>
constexpr auto min(A a, B b) {
  using T = tutti::simt::nvcc::Common<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
requires tutti::simt::nvcc::both_numbers<A, B>
constexpr auto max(A a, B b) {
  using T = tutti::simt::nvcc::Common<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// Arithmetic of floats.
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1 / std::cbrt(x); }
inline double rcbrt(double x) { return 1 / std::cbrt(x); }
inline float fdividef(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __tanhf(float x) { return std::tanh(x); }
inline void __sincosf(float x, float* sine, float* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
inline void sincospif(float x, float* sine, float* cosine) {
  __sincosf(x * 3.14159265358979323846f, sine, cosine);
}
inline float sinpif(float x) { return static_cast<float>(std::sin(x * 3.14159265358979323846)); }
inline float cospif(float x) { return static_cast<float>(std::cos(x * 3.14159265358979323846)); }
inline double sinpi(double x) { return std::sin(x * 3.14159265358979323846); }
inline double cospi(double x) { return std::cos(x * 3.14159265358979323846); }
inline float normf(int count, const float* values) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += double{values[i]} * values[i];
  return static_cast<float>(std::sqrt(sum));
}
// Rounded to nearest, as all of a CPU's arithmetic is. The other modes are not there.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1 / std::sqrt(double{x})); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double x) { return 1 / x; }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }

// Bits of floats.
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) {
  return static_cast<int>(std::bit_cast<unsigned long long>(x) >> 32);
}
inline int __double2loint(double x) {
  return static_cast<int>(std::bit_cast<unsigned long long>(x) & 0xffffffff);
}
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(static_cast<unsigned long long>(static_cast<unsigned>(high)) << 32 |
                               static_cast<unsigned>(low));
}

namespace tutti::simt::nvcc {

/// A number as an integer: what does not fit is the nearest that does, and NaN is 0, as on a GPU.
template <class To, class From>
To to_integer(From rounded) {
  constexpr To kLeast = std::numeric_limits<To>::min(), kMost = std::numeric_limits<To>::max();
  if (rounded != rounded) return 0;
  if (rounded <= static_cast<From>(kLeast)) return kLeast;
  if (rounded >= static_cast<From>(kMost)) return kMost;
  return static_cast<To>(rounded);
}

}  // namespace tutti::simt::nvcc

#define TUTTI_SIMT_TO_INTEGER(from, from_name, to, to_name)        \
  inline to __##from_name##2##to_name##_rn(from x) {               \
    return ::tutti::simt::nvcc::to_integer<to>(std::nearbyint(x)); \
  }                                                                \
  inline to __##from_name##2##to_name##_rz(from x) {               \
    return ::tutti::simt::nvcc::to_integer<to>(std::trunc(x));     \
  }                                                                \
  inline to __##from_name##2##to_name##_rd(from x) {               \
    return ::tutti::simt::nvcc::to_integer<to>(std::floor(x));     \
  }                                                                \
  inline to __##from_name##2##to_name##_ru(from x) {               \
    return ::tutti::simt::nvcc::to_integer<to>(std::ceil(x));      \
  }                                                                \
  inline from __##to_name##2##from_name##_rn(to x) { return static_cast<from>(x); }
TUTTI_SIMT_TO_INTEGER(float, float, int, int)
TUTTI_SIMT_TO_INTEGER(float, float, unsigned, uint)
TUTTI_SIMT_TO_INTEGER(float, float, long long, ll)
TUTTI_SIMT_TO_INTEGER(float, float, unsigned long long, ull)
TUTTI_SIMT_TO_INTEGER(double, double, int, int)
TUTTI_SIMT_TO_INTEGER(double, double, unsigned, uint)
TUTTI_SIMT_TO_INTEGER(double, double, long long, ll)
TUTTI_SIMT_TO_INTEGER(double, double, unsigned long long, ull)
#undef TUTTI_SIMT_TO_INTEGER
inline float __double2float_rn(double x) { return static_cast<float>(x); }

// Integers.
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1) << (31 - i);
  return reversed;
}
inline unsigned long long __brevll(unsigned long long x) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(x))) << 32 |
         __brev(static_cast<unsigned>(x >> 32));
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(y) << 32 | x;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
inline int __mulhi(int a, int b) { return static_cast<int>(static_cast<long long>(a) * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline long long __mul64hi(long long a, long long b) {
  return static_cast<long long>(static_cast<__int128>(a) * b >> 64);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(
      (static_cast<unsigned long long>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<unsigned long long>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __sad(int a, int b, unsigned c) {
  return c + static_cast<unsigned>(a < b ? b - a : a - b);
}
inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
inline int __hadd(int a, int b) { return static_cast<int>((static_cast<long long>(a) + b) >> 1); }

// Loads and stores with hints for caches, which there are none of.
#define TUTTI_SIMT_HINTS(load) \
  template <class T>           \
  T load(const T* at) {        \
    return *at;                \
  }
TUTTI_SIMT_HINTS(__ldg)
TUTTI_SIMT_HINTS(__ldca)
TUTTI_SIMT_HINTS(__ldcg)
TUTTI_SIMT_HINTS(__ldcs)
TUTTI_SIMT_HINTS(__ldlu)
TUTTI_SIMT_HINTS(__ldcv)
#undef TUTTI_SIMT_HINTS
#define TUTTI_SIMT_HINTS(store)                      \
  template <class T>                                 \
  void store(T* at, std::type_identity_t<T> value) { \
    *at = value;                                     \
  }
TUTTI_SIMT_HINTS(__stwb)
TUTTI_SIMT_HINTS(__stcg)
TUTTI_SIMT_HINTS(__stcs)
TUTTI_SIMT_HINTS(__stwt)
#undef TUTTI_SIMT_HINTS

// Collectives of a warp.
template <class T>
unsigned __match_all_sync(unsigned mask, T value, int* same) {
  *same = __match_any_sync(mask, value) == mask ? 1 : 0;
  return *same != 0 ? mask : 0;
}
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return tutti::simt::nvcc::reduce_warp(mask, value,
                                        [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return tutti::simt::nvcc::reduce_warp(mask, value, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return tutti::simt::nvcc::reduce_warp(mask, value, [](T a, T b) { return a < b ? b : a; });
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return tutti::simt::nvcc::reduce_warp(mask, value, [](unsigned a, unsigned b) { return a & b; });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return tutti::simt::nvcc::reduce_warp(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value) {
  return tutti::simt::nvcc::reduce_warp(mask, value, [](unsigned a, unsigned b) { return a ^ b; });
}
// Pairs, which language.h's functions do not take: they are not trivially copyable.
#define TUTTI_SIMT_PAIR(pair)                                                               \
  inline pair __shfl_sync(unsigned mask, pair value, int source, int width = 32) {          \
    return tutti::simt::nvcc::pair_of<pair>(                                                \
        __shfl_sync(mask, tutti::simt::nvcc::bits_of(value), source, width));               \
  }                                                                                         \
  inline pair __shfl_up_sync(unsigned mask, pair value, unsigned delta, int width = 32) {   \
    return tutti::simt::nvcc::pair_of<pair>(                                                \
        __shfl_up_sync(mask, tutti::simt::nvcc::bits_of(value), delta, width));             \
  }                                                                                         \
  inline pair __shfl_down_sync(unsigned mask, pair value, unsigned delta, int width = 32) { \
    return tutti::simt::nvcc::pair_of<pair>(                                                \
        __shfl_down_sync(mask, tutti::simt::nvcc::bits_of(value), delta, width));           \
  }                                                                                         \
  inline pair __shfl_xor_sync(unsigned mask, pair value, int lanes, int width = 32) {       \
    return tutti::simt::nvcc::pair_of<pair>(                                                \
        __shfl_xor_sync(mask, tutti::simt::nvcc::bits_of(value), lanes, width));            \
  }
TUTTI_SIMT_PAIR(__half2)
TUTTI_SIMT_PAIR(__nv_bfloat162)
#undef TUTTI_SIMT_PAIR

// Time, in nanoseconds: a clock of 1 GHz.
inline long long clock64() { return tutti::simt::nvcc::nanoseconds(); }
inline void __brkpt() { tutti::simt::die("__brkpt"); }
inline void __prof_trigger(int) {}

// What cuda_fp16.h and cuda_bf16.h have for devices alone: functions of one number, by way of
// float.
#define TUTTI_SIMT_HALF(name, function)                                               \
  inline __half h##name(__half x) { return __float2half(function(__half2float(x))); } \
  inline __nv_bfloat16 h##name(__nv_bfloat16 x) {                                     \
    return __float2bfloat16(function(__bfloat162float(x)));                           \
  }                                                                                   \
  inline __half2 h2##name(__half2 x) { return __half2(h##name(x.x), h##name(x.y)); }  \
  inline __nv_bfloat162 h2##name(__nv_bfloat162 x) {                                  \
    return __nv_bfloat162(h##name(x.x), h##name(x.y));                                \
  }
TUTTI_SIMT_HALF(ceil, std::ceil)
TUTTI_SIMT_HALF(cos, std::cos)
TUTTI_SIMT_HALF(exp, std::exp)
TUTTI_SIMT_HALF(exp2, std::exp2)
TUTTI_SIMT_HALF(exp10, __exp10f)
TUTTI_SIMT_HALF(floor, std::floor)
TUTTI_SIMT_HALF(log, std::log)
TUTTI_SIMT_HALF(log2, std::log2)
TUTTI_SIMT_HALF(log10, std::log10)
TUTTI_SIMT_HALF(rcp, 1 /)
TUTTI_SIMT_HALF(rint, std::nearbyint)
TUTTI_SIMT_HALF(rsqrt, rsqrtf)
TUTTI_SIMT_HALF(sin, std::sin)
TUTTI_SIMT_HALF(sqrt, std::sqrt)
TUTTI_SIMT_HALF(tanh, std::tanh)
TUTTI_SIMT_HALF(trunc, std::trunc)
#undef TUTTI_SIMT_HALF
// By way of double, which holds the exact product and, but for the rarest, the exact sum.
inline __half __hfma(__half a, __half b, __half c) {
  return __double2half(double{__half2float(a)} * __half2float(b) + __half2float(c));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return __half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
  return __double2bfloat16(double{__bfloat162float(a)} * __bfloat162float(b) + __bfloat162float(c));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  return __nv_bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
#define TUTTI_SIMT_HALF(type, name, to_float)                                     \
  inline int name##2int_rn(type x) { return __float2int_rn(to_float(x)); }        \
  inline int name##2int_rd(type x) { return __float2int_rd(to_float(x)); }        \
  inline int name##2int_ru(type x) { return __float2int_ru(to_float(x)); }        \
  inline unsigned name##2uint_rn(type x) { return __float2uint_rn(to_float(x)); } \
  inline unsigned name##2uint_rd(type x) { return __float2uint_rd(to_float(x)); } \
  inline unsigned name##2uint_ru(type x) { return __float2uint_ru(to_float(x)); } \
  inline long long name##2ll_rn(type x) { return __float2ll_rn(to_float(x)); }    \
  inline unsigned long long name##2ull_rn(type x) { return __float2ull_rn(to_float(x)); }
TUTTI_SIMT_HALF(__half, __half, __half2float)
TUTTI_SIMT_HALF(__nv_bfloat16, __bfloat16, __bfloat162float)
#undef TUTTI_SIMT_HALF
