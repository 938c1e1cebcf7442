// File: transport/verbs/record.h: what a rank writes into a peer's ring of records: one for each
// frame, with its payload if that is short.
//
//   what u32 · target u32 · consumed u32 x kMostPairs · offset u64 · frame header (net/frame.h),
//   then the payload, if it is at most kShortBytes
//
// A longer payload lies in the region or the replica, and was written to the same offset of the
// peer's replica or region before its record. One that lies apart (transport/gpudirect_slots.h) was
// too, however short it is; its offset is that in the range for this peer.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/net/frame.h"

namespace tutti::verbs {

inline constexpr std::size_t kMostPairs = 4;
inline constexpr std::size_t kRecordBytes = 1024;
inline constexpr std::size_t kRecordHeadBytes = 4 + 4 + 4 * kMostPairs + 8 + net::kHeaderBytes;
inline constexpr std::size_t kShortBytes = kRecordBytes - kRecordHeadBytes;

enum class What : std::uint32_t {
  kFrame = 1,
  kCredit,  // Only to say what was consumed.
  kBye,     // The last one, in sequence with the frames.
};
/// Where a payload lies, on the side that gets it: short ones in the record, long ones in near or
/// replica, of any length but none apart.
enum class Target : std::uint32_t { kRecord = 0, kNear, kReplica, kGpuDirect };

struct Record {
  What what = What::kFrame;
  Target target = Target::kRecord;
  /// Records that the writer of this one has consumed, by queue pair, since the beginning.
  std::array<std::uint32_t, kMostPairs> consumed{};
  std::uint64_t offset = 0;  // In the target.
  net::FrameHeader header;   // A frame's header; in a bye only the sequence counts.
};

inline bool fits(Target target, std::uint32_t bytes) {
  if (target == Target::kGpuDirect) return bytes != 0;
  return (target == Target::kRecord) == (bytes <= kShortBytes);
}

inline void encode(const Record& record, std::span<std::byte> into) {
  ByteWriter writer(into);
  writer.number(static_cast<std::uint32_t>(record.what));
  writer.number(static_cast<std::uint32_t>(record.target));
  for (const std::uint32_t count : record.consumed) writer.number(count);
  writer.number(record.offset);
  writer.copy(net::encode(record.header));
}

/// Empty: this is no record.
inline std::optional<Record> parse_record(std::span<const std::byte, kRecordHeadBytes> bytes) {
  ByteReader reader(bytes);
  Record record;
  const auto what = reader.number<std::uint32_t>();
  const auto target = reader.number<std::uint32_t>();
  for (std::uint32_t& count : record.consumed) count = reader.number<std::uint32_t>();
  record.offset = reader.number<std::uint64_t>();
  if (what < static_cast<std::uint32_t>(What::kFrame) ||
      what > static_cast<std::uint32_t>(What::kBye) ||
      target > static_cast<std::uint32_t>(Target::kGpuDirect))
    return std::nullopt;
  record.what = static_cast<What>(what);
  record.target = static_cast<Target>(target);
  const auto header = net::parse_header(bytes.last<net::kHeaderBytes>());
  if (!header) return std::nullopt;
  record.header = *header;
  if (!fits(record.target, record.header.bytes)) return std::nullopt;
  return record;
}

}  // namespace tutti::verbs
