// File: tutti/detail/numeric.h: the 16- and 8-bit floating-point formats and their conversions to
// and from float32, for host and device alike, with no library.
//
// Model. A format is sign, exponent and mantissa, as IEEE 754 lays them out, and its values are all
// float32 values, so widening is exact. Rounding is to nearest, ties to even, in one step from
// float32, subnormals included. Integer arithmetic only (but for one exact product), so that
// neither compiler flags nor the rounding mode of the machine have a say.
//
//   format       exponent  mantissa  infinity  too large to represent
//   float16          5        10       yes     infinity
//   bfloat16         8         7       yes     infinity
//   float8e5m2       5         2       yes     infinity
//   float8e4m3       4         3       no      NaN (OCP E4M3FN, largest 448; no saturation)
//
// Rounding decides what is too large: float8e4m3 takes 464 (the tie) to 448, and what is above it
// to NaN, infinities included. A NaN becomes the NaN of the same sign with all other bits set.
#pragma once
#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define TUTTI_HD __host__ __device__
#else
#define TUTTI_HD
#endif

namespace tutti::kernels {

TUTTI_HD inline std::uint32_t bits_of(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  return std::bit_cast<std::uint32_t>(value);
#endif
}

TUTTI_HD inline float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

/// A format smaller than float32 in its exponent too. Codes are right-aligned.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct SmallFormat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;  // Mantissa bits that float32 has in excess.
  static constexpr std::uint32_t kSignBit = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kNan = kSignBit - 1;
  // The smallest code that is not finite: infinity, or the only NaN.
  static constexpr std::uint32_t kOverflow =
      kHasInfinity ? kNan - ((1u << kMantissaBits) - 1) : kNan;
  // What a code's exponent lacks to be that of float32, in place.
  static constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << kMantissaBits;
  // float32 bits of the smallest normal number of the format, and of its smallest number.
  static constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  static constexpr std::uint32_t kSmallest = static_cast<std::uint32_t>(128 - kBias - kMantissaBits)
                                             << 23;

  TUTTI_HD static float decode(std::uint32_t code) {
    const std::uint32_t sign = (code & kSignBit) != 0 ? 0x80000000u : 0;
    const std::uint32_t magnitude = code & kNan;
    if (magnitude >= kOverflow) {
      const bool infinite = kHasInfinity && magnitude == kOverflow;
      return float_of(sign | (infinite ? 0x7f800000u : 0x7fc00000u));
    }
    if ((magnitude >> kMantissaBits) == 0) {
      const float unsigned_value = static_cast<float>(magnitude) * float_of(kSmallest);
      return float_of(sign | bits_of(unsigned_value));
    }
    return float_of(sign | ((magnitude + kRebias) << kDropped));
  }

  TUTTI_HD static std::uint32_t encode(float value) {
    const std::uint32_t bits = bits_of(value);
    const std::uint32_t sign = (bits >> 31) != 0 ? kSignBit : 0;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | kNan;
    if (magnitude < kSmallestNormal) return sign | encode_subnormal(magnitude);
    const std::uint32_t code = shift_to_even(magnitude, kDropped) - kRebias;
    return sign | (code < kOverflow ? code : kOverflow);
  }

 private:
  // bits / 2^shift, to nearest, ties to even. A carry into the exponent is the next power of two.
  TUTTI_HD static std::uint32_t shift_to_even(std::uint32_t bits, std::uint32_t shift) {
    const std::uint32_t odd = (bits >> shift) & 1u;
    return (bits + (1u << (shift - 1)) - 1 + odd) >> shift;
  }

  TUTTI_HD static std::uint32_t encode_subnormal(std::uint32_t magnitude) {
    // The value is significand * 2^(exponent - 150); the code counts multiples of kSmallest.
    // (Subnormals of float32 itself are far below all that rounds to more than zero.)
    const std::uint32_t exponent = magnitude >> 23;
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t shift = (kSmallest >> 23) + 23 - exponent;
    return shift > 25 ? 0 : shift_to_even(significand, shift);
  }
};

using Float16Format = SmallFormat<5, 10, true>;
using Float8E4M3Format = SmallFormat<4, 3, false>;
using Float8E5M2Format = SmallFormat<5, 2, true>;

/// The upper half of float32.
struct Bfloat16Format {
  TUTTI_HD static float decode(std::uint32_t code) { return float_of(code << 16); }
  TUTTI_HD static std::uint32_t encode(float value) {
    const std::uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x7fffu;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  }
};

/// How a number of a narrow format lies in memory.
template <class SomeFormat, class Word>
struct Narrow {
  using Format = SomeFormat;
  Word bits;
};
using Float16 = Narrow<Float16Format, std::uint16_t>;
using Bfloat16 = Narrow<Bfloat16Format, std::uint16_t>;
using Float8E4M3 = Narrow<Float8E4M3Format, std::uint8_t>;
using Float8E5M2 = Narrow<Float8E5M2Format, std::uint8_t>;

/// Exact.
template <class Format, class Word>
TUTTI_HD float to_float(Narrow<Format, Word> x) {
  return Format::decode(x.bits);
}

/// Rounds to nearest, ties to even: `round_to<Float16>(x)`.
template <class T>
TUTTI_HD T round_to(float value) {
  return {static_cast<decltype(T::bits)>(T::Format::encode(value))};
}

}  // namespace tutti::kernels
