// File: kernels/host/wire_reference.cc: wire formats straight from their definitions, one element
// at a time. It is here to be right, not to be fast.
#include <algorithm>
#include <cstring>

#include "kernels/host/wire.h"

namespace tutti::kernels {
namespace {

std::uint32_t encode_one(const Wire& wire, float value, std::uint32_t random) {
  const bool by_chance = wire.rounding == Rounding::kStochastic;
  switch (wire.format) {
    case WireFormat::kFloat16:
      return by_chance ? encode_by_chance<Float16Format>(value, random)
                       : Float16Format::encode(value);
    case WireFormat::kBfloat16:
      return by_chance ? encode_bfloat16_by_chance(value, random) : Bfloat16Format::encode(value);
    case WireFormat::kInt8: return encode_int8(value, by_chance, random);
    case WireFormat::kFloat8: return encode_float8(value, by_chance, random);
    case WireFormat::kPlain: break;
  }
  return 0;
}

float decode_one(WireFormat format, std::uint32_t code) {
  switch (format) {
    case WireFormat::kFloat16: return Float16Format::decode(code);
    case WireFormat::kBfloat16: return Bfloat16Format::decode(code);
    case WireFormat::kInt8: return decode_int8(code);
    case WireFormat::kFloat8: return Float8E4M3Format::decode(code);
    case WireFormat::kPlain: break;
  }
  return 0;
}

std::uint32_t code_of_scale(WireFormat format, std::uint32_t largest) {
  return format == WireFormat::kInt8 ? scale_code<Int8Element>(largest)
                                     : scale_code<Float8Element>(largest);
}

float float_at(const std::byte* data, std::size_t index) {
  float value = 0;
  std::memcpy(&value, data + index * sizeof(value), sizeof(value));
  return value;
}

void put(std::byte* data, std::size_t index, float value) {
  std::memcpy(data + index * sizeof(value), &value, sizeof(value));
}

}  // namespace

void encode_reference(const Wire& wire, const Encoding& part) {
  const std::size_t bytes = static_cast<std::size_t>(wire_bits(wire.format)) / 8;
  for (std::size_t at = 0; at < part.count; at += kWireBlock) {
    const std::size_t end = std::min(at + kWireBlock, part.count);
    std::uint32_t largest = 0;
    for (std::size_t i = at; i < end; ++i)
      largest = std::max(largest, bits_of(float_at(part.from, i)) & 0x7fffffffu);
    const bool scaled = has_scales(wire.format);
    const std::uint32_t scale = scaled ? code_of_scale(wire.format, largest) : 127;
    if (scaled && part.scales != nullptr)
      part.scales[at / kWireBlock] = static_cast<std::byte>(scale);
    const WireKey key = block_key(part.stream, part.element + at);
    for (std::size_t i = at; i < end; ++i) {
      const bool nan = scale == kNanScale;
      const float plain = float_at(part.from, i);
      const float value = scaled && !nan ? plain * inverse_scale_of(scale) : plain;
      const std::uint32_t random = random_bits(key, static_cast<std::uint32_t>(i - at));
      const std::uint32_t code = nan ? 0 : encode_one(wire, value, random);
      if (part.to != nullptr) std::memcpy(part.to + i * bytes, &code, bytes);  // Little endian.
      if (part.decoded == nullptr) continue;
      const float factor = nan ? float_of(0x7fc00000u) : scaled ? scale_of(scale) : 1;
      put(part.decoded, i, decode_one(wire.format, code) * factor);
    }
  }
}

void decode_reference(const Wire& wire, const Decoding& part) {
  const std::size_t bytes = static_cast<std::size_t>(wire_bits(wire.format)) / 8;
  for (std::size_t i = 0; i < part.count; ++i) {
    std::uint32_t code = 0;
    std::memcpy(&code, part.from + i * bytes, bytes);
    const auto scale =
        has_scales(wire.format) ? std::to_integer<std::uint32_t>(part.scales[i / kWireBlock]) : 127;
    const float factor = scale == kNanScale ? float_of(0x7fc00000u) : scale_of(scale);
    put(part.to, i, decode_one(wire.format, code) * factor);
  }
}

}  // namespace tutti::kernels
