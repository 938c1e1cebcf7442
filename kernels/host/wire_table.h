// File: kernels/host/wire_table.h: one function for each wire format and rounding, for the
// instruction set of this machine. Private to kernels/host.
#pragma once
#include <array>

#include "kernels/host/wire.h"

namespace tutti::kernels {

struct WireTable {
  using Encode = void (*)(const Encoding&);
  using Decode = void (*)(const Decoding&);
  static constexpr std::size_t kFormats = 0
#define TUTTI_WIRE_FORMAT(...) +1
#include "tutti/wire_formats.def"
#undef TUTTI_WIRE_FORMAT
      ;
  // By format, and by rounding; none for the plain format.
  std::array<std::array<Encode, 2>, kFormats> encode{};
  std::array<Decode, kFormats> decode{};
};

/// For the best instruction set that Highway says is supported. Tests narrow its choice.
WireTable make_wire_table();

}  // namespace tutti::kernels
