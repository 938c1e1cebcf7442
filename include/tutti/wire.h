// File: tutti/wire.h: wire formats: how float32 values travel between ranks, if a call asks for
// fewer bytes.
//
// With a wire format, a call rounds each value twice at most: once each rank's input, once the
// result. In between all is float32, in the canonical order. So the bits of a result depend on the
// inputs, the rank count, the operation, the wire and, if rounding is stochastic, on how many calls
// with a wire this communicator has made before. All ranks have the same bits.
//
//   float16, bfloat16   2 bytes an element
//   int8, float8        1 byte an element and 1 byte for each 32 elements: a scale, which is the
//                       smallest power of two that lets the largest of them fit (int8: -127 to 127;
//                       float8: e4m3). An infinity or NaN makes all 32 NaN.
//
// How far the result of a sum of n ranks can be from the exact one: docs/compression.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/export.h"

namespace tutti {

/// The list is `wire_formats.def`.
enum class WireFormat : std::uint8_t {
#define TUTTI_WIRE_FORMAT(enumerator, ...) enumerator,
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
};

inline constexpr int kWireFormats = 0
#define TUTTI_WIRE_FORMAT(...) +1
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
    ;

/// How a value that lies between two of a format becomes one of them. `kStochastic`: the upper one
/// with a probability that makes the expected value exact; a counter-based generator draws, keyed
/// by call, rank and element, so it is the same whatever rank rounds. `kNearest`: ties to even.
enum class Rounding : std::uint8_t { kNearest, kStochastic };

/// The wire of a call: `Wire{}` sends values as they are.
struct Wire {
  WireFormat format = WireFormat::kPlain;
  Rounding rounding = Rounding::kNearest;
  constexpr Wire() = default;
  /// With the format's usual rounding: nearest for 16 bits, stochastic for 8.
  constexpr Wire(WireFormat which);
  constexpr Wire(WireFormat which, Rounding how) : format(which), rounding(how) {}
  constexpr bool is_plain() const { return format == WireFormat::kPlain; }
  friend constexpr bool operator==(const Wire&, const Wire&) = default;
};

constexpr std::string_view to_string(WireFormat format) {
  switch (format) {
#define TUTTI_WIRE_FORMAT(enumerator, text, ...) \
  case WireFormat::enumerator:                   \
    return text;
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
  }
  return "unknown wire format";
}

/// Bits of an element, without the scale of its block.
constexpr int wire_bits(WireFormat format) {
  switch (format) {
#define TUTTI_WIRE_FORMAT(enumerator, text, bits, ...) \
  case WireFormat::enumerator:                         \
    return bits;
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
  }
  return 0;
}

/// Whether each block of elements has a scale.
constexpr bool has_scales(WireFormat format) {
  switch (format) {
#define TUTTI_WIRE_FORMAT(enumerator, text, bits, scaled, ...) \
  case WireFormat::enumerator:                                 \
    return scaled;
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
  }
  return false;
}

constexpr Wire::Wire(WireFormat which)
    : format(which), rounding(has_scales(which) ? Rounding::kStochastic : Rounding::kNearest) {}

/// "int8", or "int8:nearest" where the rounding is not the format's usual one.
TUTTI_API std::string to_string(const Wire& wire);
/// The reverse; empty for anything else.
TUTTI_API std::optional<Wire> parse_wire(std::string_view text);

/// The most that the sum of `rank_count` values can be off: where no input is larger in magnitude
/// than `largest`, and finite in the format. With the plain format: by the rounding of float32.
TUTTI_API double error_bound(const Wire& wire, int rank_count, double largest);

}  // namespace tutti
