// File: tutti/detail/wire_codec.h: the wire formats of tutti/wire.h, one element at a time, for
// host and device alike. This is the definition; faster code has to have the same bits.
//
// Model. A block is 32 elements of the message. In a format with scales its scale is a power of
// two, 2^(code - 127), and each element is multiplied by the scale's inverse, which is exact,
// before it is rounded. So only rounding changes a value, and a value that was rounded once does
// not change when it is encoded again: its new scale is the old one, or half of it, and every value
// of the coarser grid is in the finer one. Executors rely on that: they may encode a finished value
// wherever it has to be sent.
//
// In memory: the scales of all blocks, a byte each, up to a multiple of 32 bytes; then the
// elements.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/detail/numeric.h"
#include "tutti/wire.h"

namespace tutti::kernels {

inline constexpr std::size_t kWireBlock = 32;  // Elements.
inline constexpr std::uint32_t kNanScale = 255;

/// Bytes of the scales of so many elements.
TUTTI_HD constexpr std::size_t scale_bytes(WireFormat format, std::size_t count) {
  if (!has_scales(format)) return 0;
  const std::size_t blocks = (count + kWireBlock - 1) / kWireBlock;
  return (blocks + 31) / 32 * 32;
}
/// Bytes of so many elements.
TUTTI_HD constexpr std::size_t encoded_bytes(WireFormat format, std::size_t count) {
  return scale_bytes(format, count) + count * static_cast<std::size_t>(wire_bits(format)) / 8;
}
/// The most elements whose encoding fits: a multiple of a block; 0: not even one block.
constexpr std::size_t encoded_elements(WireFormat format, std::size_t bytes) {
  std::size_t blocks =
      bytes * 8 / (kWireBlock * static_cast<std::size_t>(wire_bits(format)));  // At most.
  while (blocks != 0 && encoded_bytes(format, blocks * kWireBlock) > bytes) --blocks;
  return blocks * kWireBlock;
}

/// Random bits of a block's elements: a hash of a key and of the element's place in the block.
struct WireKey {
  std::uint32_t first = 0, second = 0;
};
TUTTI_HD constexpr std::uint64_t mix_key(std::uint64_t word) {  // SplitMix64's finalizer.
  word += 0x9e3779b97f4a7c15ULL;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
  return word ^ (word >> 31);
}
/// The key of a block. `stream` is the same for all blocks that one rank rounds in a call: see
/// stream_key. `element` is the index in the message of the block's first element.
TUTTI_HD constexpr WireKey block_key(std::uint64_t stream, std::uint64_t element) {
  const std::uint64_t key = mix_key(stream ^ element);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}
/// `call` counts calls; `source` is the rank whose values are rounded, or kResultSource.
inline constexpr std::uint32_t kResultSource = 0xffffffff;
TUTTI_HD constexpr std::uint64_t stream_key(std::uint64_t call, std::uint32_t source) {
  return mix_key(mix_key(call) + source);
}
/// 32 random bits for element `index` of the block.
TUTTI_HD constexpr std::uint32_t random_bits(WireKey key, std::uint32_t index) {
  std::uint32_t hash = index * 0x9e3779b9u + key.first;
  hash = (hash ^ (hash >> 16)) * 0x7feb352du;
  hash = (hash ^ (hash >> 15) ^ key.second) * 0x846ca68bu;
  return hash ^ (hash >> 16);
}

/// What a format with scales needs to know of its elements: the largest one is 2^kExponent times
/// a number whose mantissa bits, as a float32's, are kMantissa.
struct Int8Element {  // 127 = 2^6 * 1.984375
  static constexpr std::uint32_t kExponent = 6, kMantissa = 0x7e0000, kLeastScale = 1;
};
struct Float8Element {  // 448 = 2^8 * 1.75. The least scale keeps all values normal.
  static constexpr std::uint32_t kExponent = 8, kMantissa = 0x600000, kLeastScale = 10;
};

/// The scale's code for a block whose largest magnitude has these float32 bits.
template <class Element>
TUTTI_HD constexpr std::uint32_t scale_code(std::uint32_t largest) {
  if (largest >= 0x7f800000u) return kNanScale;
  const std::uint32_t exponent = largest >> 23;
  const std::uint32_t above = (largest & 0x7fffffu) > Element::kMantissa ? 1 : 0;
  const std::uint32_t least = Element::kLeastScale + Element::kExponent;
  // Beyond the largest scale the largest values are cut to the largest of the format.
  constexpr std::uint32_t kMost = 254 - Element::kExponent;
  const std::uint32_t code =
      exponent + above < least ? Element::kLeastScale : exponent + above - Element::kExponent;
  return code < kMost ? code : kMost;
}
TUTTI_HD inline float scale_of(std::uint32_t code) { return float_of(code << 23); }
TUTTI_HD inline float inverse_scale_of(std::uint32_t code) { return float_of((254 - code) << 23); }

/// The integer at or below `value`, and 1 more if the random bits say so. `value` is at least 0.
TUTTI_HD inline std::uint32_t round_up_by_chance(float value, std::uint32_t random) {
  const auto whole = static_cast<std::uint32_t>(value);
  const float rest = value - static_cast<float>(whole);
  return whole + (static_cast<float>(random >> 8) * float_of(0x33800000u) < rest ? 1 : 0);  // 2^-24
}
/// To nearest, ties to even; magnitudes below 2^22.
TUTTI_HD inline std::uint32_t round_to_even(float value) {
  const float shift = 8388608.0F;  // 2^23: its last place is 1.
  return bits_of(value + shift) - bits_of(shift);
}

/// An element of a scaled block, from a finite value times the inverse scale.
TUTTI_HD inline std::uint32_t encode_int8(float value, bool stochastic, std::uint32_t random) {
  float magnitude = float_of(bits_of(value) & 0x7fffffffu);
  if (magnitude > 127) magnitude = 127;
  const std::uint32_t whole =
      stochastic ? round_up_by_chance(magnitude, random) : round_to_even(magnitude);
  return ((bits_of(value) >> 31) != 0 ? 0u - whole : whole) & 0xffu;
}
TUTTI_HD inline float decode_int8(std::uint32_t code) {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

/// A number of a small format, rounded by chance; NaN and infinity stay what they are.
template <class Format>
TUTTI_HD std::uint32_t encode_by_chance(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 31) != 0 ? Format::kSignBit : 0;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | Format::kNan;
  if (magnitude < Format::kSmallestNormal) {
    const float places = float_of(magnitude) * float_of((254u << 23) - Format::kSmallest);
    return sign | round_up_by_chance(places, random);
  }
  const std::uint32_t code =
      ((magnitude + (random >> (32 - Format::kDropped))) >> Format::kDropped) - Format::kRebias;
  return sign | (code < Format::kOverflow ? code : Format::kOverflow);
}
TUTTI_HD inline std::uint32_t encode_bfloat16_by_chance(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x7fffu;
  return (bits + (random >> 16)) >> 16;
}

TUTTI_HD inline std::uint32_t encode_float8(float value, bool stochastic, std::uint32_t random) {
  const std::uint32_t bits = bits_of(value);
  const float most = 448;
  const float cut =
      float_of(bits & 0x7fffffffu) > most ? float_of(bits_of(most) | (bits & 0x80000000u)) : value;
  return stochastic ? encode_by_chance<Float8E4M3Format>(cut, random)
                    : Float8E4M3Format::encode(cut);
}

}  // namespace tutti::kernels
