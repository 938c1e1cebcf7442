// File: kernels/host/wire_table.h: one function for each wire format and rounding, for the
// instruction set of this machine. Private to kernels/host.
#pragma once
#include <array>

#include "kernels/host/wire.h"

namespace tutti::kernels {

struct WireTable {
  using Encode = void (*)(const Encoding&);
  using Decode = void (*)(const Decoding&);
  // By format, and by rounding; none for the plain format.
  std::array<std::array<Encode, 2>, kWireFormats> encode{};
  std::array<Decode, kWireFormats> decode{};
};

/// For the best instruction set that Highway says is supported. Tests narrow its choice.
WireTable make_wire_table();

}  // namespace tutti::kernels
