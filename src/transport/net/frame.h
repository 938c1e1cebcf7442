// File: transport/net/frame.h: the frames that ranks without common memory exchange: headers and
// payloads.
//
//   bytes u32 · kind u16 · 0 u16 · channel u32 · sequence u32 · order u32 · heard u32 ·
//   position u64, then `bytes` bytes
//
// All numbers are little-endian. The sender of frames gives kinds, channels and positions their
// meaning; here they are only carried.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "tutti/result.h"

namespace tutti::net {

/// A payload in pieces.
using Piece = std::span<const std::byte>;

/// Whether they have a byte in common.
inline bool overlap(Piece a, Piece b) {
  const std::less<> before;  // Orders pointers to anything.
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

inline constexpr std::size_t kMostPieces = 2;  // In a payload.
inline constexpr std::size_t kHeaderBytes = 36;
inline constexpr std::size_t kMostFrameBytes = std::size_t{16} << 20;

struct FrameHeader {
  std::uint32_t bytes = 0;     // The payload's; at most kMostFrameBytes.
  std::uint16_t kind = 0;      // From 1.
  std::uint32_t channel = 0;   // Which of the things that the two ranks share,
  std::uint64_t position = 0;  // and where in it.
  std::uint32_t stamp = 0;     // A slot's: see Ring::stamps.
  std::uint32_t sequence = 0;  // The carrier's own.
  // For Rails (rails.h), if there are several carriers to a rank: this frame's number, and how many
  // frames of the other direction were announced.
  std::uint32_t order = 0, acked = 0;
};

inline std::array<std::byte, kHeaderBytes> encode(const FrameHeader& header) {
  std::array<std::byte, kHeaderBytes> bytes{};
  ByteWriter writer(bytes);
  writer.number(header.bytes);
  writer.number(header.kind);
  writer.number(std::uint16_t{0});
  writer.number(header.channel);
  writer.number(header.sequence);
  writer.number(header.order);
  writer.number(header.acked);
  writer.number(header.stamp);
  writer.number(header.position);
  return bytes;
}

/// Empty: this is no header; the two sides have lost each other.
inline std::optional<FrameHeader> parse_header(std::span<const std::byte, kHeaderBytes> bytes) {
  ByteReader reader(bytes);
  FrameHeader header;
  header.bytes = reader.number<std::uint32_t>();
  header.kind = reader.number<std::uint16_t>();
  const auto zero = reader.number<std::uint16_t>();
  header.channel = reader.number<std::uint32_t>();
  header.sequence = reader.number<std::uint32_t>();
  header.order = reader.number<std::uint32_t>();
  header.acked = reader.number<std::uint32_t>();
  header.stamp = reader.number<std::uint32_t>();
  header.position = reader.number<std::uint64_t>();
  if (header.bytes > kMostFrameBytes || header.kind == 0 || zero != 0) return std::nullopt;
  return header;
}

/// Takes the frames that come in. Called from progress(); by UCX also whenever its worker is
/// driven.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// Where the frame's payload belongs: memory of header.bytes bytes that stays until `arrived`.
  /// Empty: not now; a later call with the same header says where. An error breaks the connection:
  /// the header makes no sense.
  virtual Result<std::optional<std::byte*>> place(const FrameHeader& header) = 0;
  /// Whether frames take turns in that memory: only the next one to be announced may have it.
  virtual bool takes_turns(const FrameHeader&) const { return false; }
  /// The payload is there.
  virtual Status arrived(const FrameHeader& header) = 0;
};

}  // namespace tutti::net
