// File: transport/verbs/renewal_message.h: the message by which two ranks make the queue pairs of a
// lost rail anew. It travels over a rail that lives (net/rails.h).
//
//   type u8 · pairs u8 · MTU u8 · 0 u8 · serial u32 · LID u16 · 0 u16 · first packet u32 ·
//   numbers u32 x kMostPairs · GID
//
// Every rank of a job speaks the same version, so the message has none. It comes from a peer that
// has joined; a wrong one keeps its own rail from being made.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "transport/net/rails.h"
#include "transport/verbs/pair.h"
#include "transport/verbs/record.h"

namespace tutti::verbs {

inline constexpr std::size_t kRenewalMessageBytes = 4 + 4 + 4 + 4 + 4 * kMostPairs + sizeof(Gid);
static_assert(kRenewalMessageBytes <= net::Renewal::kMostMessageBytes);

struct RenewalMessage {
  enum class Type : std::uint8_t { kRequest = 1, kResponse };
  Type type = Type::kRequest;
  std::uint32_t serial = 0;  // The number of the requester's attempt, from 1.
  PortAddress from;          // The sender's port,
  std::uint32_t psn = 0;     // where its packets begin to be counted,
  std::uint8_t pairs = 0;    // and how many queue pairs it has,
  std::array<std::uint32_t, kMostPairs> numbers{};  // with these numbers; the others are 0.
};

inline void encode(const RenewalMessage& message, std::span<std::byte, kRenewalMessageBytes> into) {
  ByteWriter writer(into);
  writer.number(static_cast<std::uint8_t>(message.type));
  writer.number(message.pairs);
  writer.number(message.from.mtu);
  writer.number(std::uint8_t{0});
  writer.number(message.serial);
  writer.number(message.from.lid);
  writer.number(std::uint16_t{0});
  writer.number(message.psn);
  for (const std::uint32_t number : message.numbers) writer.number(number);
  writer.copy(std::as_bytes(std::span(message.from.gid)));
}

/// Whether packets can be sent to a port with such an address.
inline bool is_sound(const PortAddress& address, LinkLayer layer) {
  if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096) return false;
  constexpr std::uint8_t kMulticast = 0xff;
  if (address.gid[0] == kMulticast) return false;
  if (layer == kInfiniBand) return address.lid != 0 && address.lid <= kMostUnicastLid;
  return std::ranges::any_of(address.gid, [](auto byte) { return byte != 0; });
}

/// Empty: this is no message for so many queue pairs over such ports.
inline std::optional<RenewalMessage> parse_renewal_message(std::span<const std::byte> bytes,
                                                           std::size_t pairs, LinkLayer layer) {
  ByteReader reader(bytes);
  RenewalMessage message;
  const auto type = reader.number<std::uint8_t>();
  message.pairs = reader.number<std::uint8_t>();
  message.from.mtu = reader.number<std::uint8_t>();
  const auto zero = reader.number<std::uint8_t>();
  message.serial = reader.number<std::uint32_t>();
  message.from.lid = reader.number<std::uint16_t>();
  const auto zeros = reader.number<std::uint16_t>();
  message.psn = reader.number<std::uint32_t>();
  for (std::uint32_t& number : message.numbers) number = reader.number<std::uint32_t>();
  const auto gid = reader.take(message.from.gid.size());
  std::ranges::copy(gid, reinterpret_cast<std::byte*>(message.from.gid.data()));
  const bool known = type == static_cast<std::uint8_t>(RenewalMessage::Type::kRequest) ||
                     type == static_cast<std::uint8_t>(RenewalMessage::Type::kResponse);
  if (!reader.whole() || !known || zero != 0 || zeros != 0 || message.serial == 0 ||
      message.psn > kMostPsn || message.pairs != pairs || !is_sound(message.from, layer))
    return std::nullopt;
  for (std::size_t i = 0; i < kMostPairs; ++i) {
    const bool is_number = message.numbers[i] != 0 && message.numbers[i] <= kMostNumber;
    if (i < pairs ? !is_number : message.numbers[i] != 0) return std::nullopt;
  }
  message.type = static_cast<RenewalMessage::Type>(type);
  return message;
}

}  // namespace tutti::verbs
