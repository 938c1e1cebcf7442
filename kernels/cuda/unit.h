// File: kernels/cuda/unit.h: units of data, from and to memory and slots.
//
// A unit on its way is kept as bits; only arithmetic (arithmetic.h) looks into it. A thread waits
// here for data in a packed slot, bounded by a Watch.
#pragma once

#include "kernels/cuda/calls.h"
#include "kernels/cuda/interpreter.h"
#include "tutti/detail/prim.h"
#include "tutti/detail/unit_arithmetic.h"

namespace tutti::cuda {

/// A source or target of the current step, looked up.
struct Resolved {
  std::byte* at;           // The tile's first byte.
  std::uint64_t flag;      // The slot's flag, in the packed (packed_flags) and the line format.
  std::uint64_t position;  // The slot's, in its ring.
  RingEnd* ring;           // Null: no slot.
  std::uint16_t peer;
  SlotFormat format;  // kSimple: plain data.
  Form form;          // As it lies in memory.
  bool scale;         // A source that is multiplied first.
  bool input;         // A source that is the rank's input.
  bool whole;         // Plain data that ends with a whole unit, in a slot or scratch.
  bool aligned;       // To 16 bytes.
};

/// Which unit a thread works on.
struct Position {
  unsigned unit;   // In the tile.
  unsigned valid;  // Elements of it that are in the message; 0: this thread has none.
  unsigned row;    // The warp's row, of kWarpUnits units.
  unsigned lane;
  TUTTI_DEVICE bool flag_lane() const { return lane % kLineLanes == kLineLanes - 1; }
};

/// The vectors of 16 bytes that a unit takes in a line.
template <std::size_t kBytes>
inline constexpr std::size_t kVectors = (kBytes + 15) / 16;

/// Where a lane's vector `index` of a unit is.
template <std::size_t kBytes>
TUTTI_DEVICE std::byte* line_at(const Resolved& at, const Position& position, std::size_t index) {
  return at.at + (position.row * kVectors<kBytes> + index) * kWarpLineBytes + position.lane * 16;
}

/// Where units may be: in plain memory, or in slots of any format too. Kernels that have no slots
/// are spared the code for them.
enum class Where { kPlain, kAnywhere };

/// A unit in a packed slot: all of its lines are asked for before any is looked at. True if all
/// have arrived.
template <std::size_t kBytes>
TUTTI_DEVICE bool load_lines(const Resolved& source, const Position& position, Bits<kBytes>& bits) {
  const std::byte* line = source.at + std::size_t{position.unit} * (kBytes * 2);
  const auto flag = static_cast<std::uint32_t>(source.flag);
  const auto check = static_cast<std::uint32_t>(source.flag >> 32);
  bool there = true;
#pragma unroll
  for (std::size_t i = 0; i < kBytes / 8; ++i) {
    there &= load_packed(line + i * 16, flag, check, bits.word[i * 2], bits.word[i * 2 + 1]);
  }
  return there;
}

/// A unit of a source. Where the format is kLine all lanes of the warp call. `failed` is set where
/// the wait for it was given up.
template <std::size_t kBytes, std::size_t kElements, Where where = Where::kAnywhere>
TUTTI_DEVICE Bits<kBytes> load_unit(const Resolved& source, const Position& position, Watch& watch,
                                    bool& failed) {
  auto bits = zero_bits<kBytes>();
  const bool mine = position.valid != 0;
  if (where == Where::kPlain || source.format == SlotFormat::kSimple) {
    const std::byte* at = source.at + std::size_t{position.unit} * kBytes;
    if (mine && source.aligned && (source.whole || position.valid == kElements)) {
      return load_whole<kBytes>(at);
    }
    constexpr std::size_t kElement = kBytes / kElements;
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      if (e < position.valid) load_element<kElement>(at + e * kElement, e, bits);
    }
  } else if (source.format == SlotFormat::kPacked) {
    if (!mine) return bits;
    while (!failed && !load_lines(source, position, bits)) failed = watch.gives_up(source.peer);
    if (!failed) failed = !watch.met(source.peer);
  } else {
#pragma unroll
    for (std::size_t i = 0; i < kVectors<kBytes>; ++i) {
      Vector16 data = {};
      const std::byte* at = line_at<kBytes>(source, position, i);
      // Lanes give up together, as all of them take part in each poll.
      while (!failed && !load_line(at, position.flag_lane(), source.flag, data)) {
        failed = __any_sync(~0u, watch.gives_up(source.peer) ? 1 : 0) != 0;
      }
#pragma unroll
      for (std::size_t w = 0; w < (kBytes < 16 ? kBytes / 4 : 4); ++w) {
        bits.word[i * 4 + w] = data.word[w];
      }
    }
    failed = __any_sync(~0u, failed || !watch.met(source.peer) ? 1 : 0) != 0;
  }
  return bits;
}

/// A unit of a target; as load_unit.
template <std::size_t kBytes, std::size_t kElements, Where where = Where::kAnywhere>
TUTTI_DEVICE void store_unit(const Resolved& target, const Position& position,
                             const Bits<kBytes>& bits) {
  if (where == Where::kAnywhere && target.format == SlotFormat::kLine) {
#pragma unroll
    for (std::size_t i = 0; i < kVectors<kBytes>; ++i) {
      Vector16 data = {};
#pragma unroll
      for (std::size_t w = 0; w < (kBytes < 16 ? kBytes / 4 : 4); ++w) {
        data.word[w] = bits.word[i * 4 + w];
      }
      store_line(line_at<kBytes>(target, position, i), data, position.flag_lane(), target.flag);
    }
    return;
  }
  if (position.valid == 0) return;
  if (where == Where::kAnywhere && target.format == SlotFormat::kPacked) {
#pragma unroll
    for (std::size_t i = 0; i < kBytes / 8; ++i) {
      store_packed(target.at + (std::size_t{position.unit} * (kBytes / 8) + i) * 16,
                   bits.word[i * 2], bits.word[i * 2 + 1], static_cast<std::uint32_t>(target.flag),
                   static_cast<std::uint32_t>(target.flag >> 32));
    }
    return;
  }
  std::byte* at = target.at + std::size_t{position.unit} * kBytes;
  if (target.aligned && (target.whole || position.valid == kElements)) {
    return store_whole(at, bits);
  }
  constexpr std::size_t kElement = kBytes / kElements;
#pragma unroll
  for (unsigned e = 0; e < kElements; ++e) {
    if (e < position.valid) store_element<kElement>(at + e * kElement, e, bits);
  }
}

}  // namespace tutti::cuda
