// File: transport/ucx/message.h: the bytes before each active message.
//
//   key (16) · from u32 · what u32 · the frame's header (32, net/frame.h), then its payload
//
// A worker of UCX takes messages from any process that can reach it, and does not name the sender.
// So each message names it, and shows the receiver's key: random, made by the receiver, and known
// only to ranks of the job, which got it through the rendezvous. A message without it is dropped,
// and its payload is never fetched. This hides and seals nothing. An attacker that can read the
// messages can also show the key; and before a message comes to us, UCX itself has believed its
// sender. On an untrusted network the transport tcp is the better one.
#pragma once
#include <sodium.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/net/frame.h"

namespace tutti::ucx {

using Key = std::array<std::byte, 16>;

enum class What : std::uint32_t {
  kFrame = 1,
  kHello = 2,  // The way from there to here works. Not counted among the frames.
  kBye = 3,    // Comes in its turn, like a frame: nothing will follow.
};

struct Message {
  int from = 0;  // A rank; not negative.
  What what = What::kFrame;
  net::FrameHeader header;  // In a hello and a bye only the sequence counts.
};

inline constexpr std::size_t kMessageBytes = 16 + 4 + 4 + net::kHeaderBytes;
using MessageBytes = std::array<std::byte, kMessageBytes>;

/// `key`: the receiver's.
inline MessageBytes encode(const Message& message, const Key& key) {
  MessageBytes bytes{};
  ByteWriter writer(bytes);
  writer.copy(key);
  writer.number(static_cast<std::uint32_t>(message.from));
  writer.number(static_cast<std::uint32_t>(message.what));
  writer.copy(net::encode(message.header));
  return bytes;
}

/// Empty: from an unauthenticated peer, or no message. `key`: this rank's. `payload_bytes`: what
/// came with it.
inline std::optional<Message> parse_message(std::span<const std::byte> bytes, const Key& key,
                                            std::size_t payload_bytes, int rank_count) {
  if (bytes.size() != kMessageBytes) return std::nullopt;
  ByteReader reader(bytes);
  // In constant time: how long it takes tells nothing about the key.
  if (sodium_memcmp(reader.take(key.size()).data(), key.data(), key.size()) != 0)
    return std::nullopt;
  const auto from = reader.number<std::uint32_t>();
  const auto what = reader.number<std::uint32_t>();
  const auto header = net::parse_header(reader.take_rest().first<net::kHeaderBytes>());
  if (from >= static_cast<std::uint32_t>(rank_count) ||
      what < static_cast<std::uint32_t>(What::kFrame) ||
      what > static_cast<std::uint32_t>(What::kBye) || !header || header->bytes != payload_bytes)
    return std::nullopt;
  return Message{static_cast<int>(from), static_cast<What>(what), *header};
}

}  // namespace tutti::ucx
