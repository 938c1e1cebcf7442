// File: transport/verbs/renewal_words.h: what two ranks tell each other to make the queue pairs of
// a lost rail anew. The words travel over a rail that lives (net/rails.h).
//
//   what u8 · pairs u8 · MTU u8 · 0 u8 · serial u32 · LID u16 · 0 u16 · first packet u32 ·
//   numbers u32 x kMostPairs · GID
//
// Every rank of a job speaks the same version, so these have none. They come from a peer that has
// joined; wrong ones keep its own rail from being made.
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

inline constexpr std::size_t kRenewalWordBytes = 4 + 4 + 4 + 4 + 4 * kMostPairs + sizeof(Gid);
static_assert(kRenewalWordBytes <= net::Renewal::kMostWordBytes);

struct RenewalWords {
  enum class What : std::uint8_t { kAsk = 1, kAnswer };
  What what = What::kAsk;
  std::uint32_t serial = 0;  // The number of the asking rank's attempt, from 1.
  PortAddress from;          // The port of the rank that speaks,
  std::uint32_t psn = 0;     // where its packets begin to be counted,
  std::uint8_t pairs = 0;    // and how many queue pairs it has,
  std::array<std::uint32_t, kMostPairs> numbers{};  // with these numbers; the others are 0.
};

inline void encode(const RenewalWords& words, std::span<std::byte, kRenewalWordBytes> into) {
  ByteWriter writer(into);
  writer.number(static_cast<std::uint8_t>(words.what));
  writer.number(words.pairs);
  writer.number(words.from.mtu);
  writer.number(std::uint8_t{0});
  writer.number(words.serial);
  writer.number(words.from.lid);
  writer.number(std::uint16_t{0});
  writer.number(words.psn);
  for (const std::uint32_t number : words.numbers) writer.number(number);
  writer.copy(std::as_bytes(std::span(words.from.gid)));
}

/// Whether packets can be sent to a port with such an address.
inline bool is_sound(const PortAddress& address, LinkLayer layer) {
  if (address.mtu < IBV_MTU_256 || address.mtu > IBV_MTU_4096) return false;
  constexpr std::uint8_t kMulticast = 0xff;
  if (address.gid[0] == kMulticast) return false;
  if (layer == kInfiniBand) return address.lid != 0 && address.lid <= kMostUnicastLid;
  return std::ranges::any_of(address.gid, [](auto byte) { return byte != 0; });
}

/// Empty: these are no words for so many queue pairs over such ports.
inline std::optional<RenewalWords> parse_renewal_words(std::span<const std::byte> bytes,
                                                       std::size_t pairs, LinkLayer layer) {
  ByteReader reader(bytes);
  RenewalWords words;
  const auto what = reader.number<std::uint8_t>();
  words.pairs = reader.number<std::uint8_t>();
  words.from.mtu = reader.number<std::uint8_t>();
  const auto zero = reader.number<std::uint8_t>();
  words.serial = reader.number<std::uint32_t>();
  words.from.lid = reader.number<std::uint16_t>();
  const auto zeros = reader.number<std::uint16_t>();
  words.psn = reader.number<std::uint32_t>();
  for (std::uint32_t& number : words.numbers) number = reader.number<std::uint32_t>();
  const auto gid = reader.take(words.from.gid.size());
  std::ranges::copy(gid, reinterpret_cast<std::byte*>(words.from.gid.data()));
  const bool known = what == static_cast<std::uint8_t>(RenewalWords::What::kAsk) ||
                     what == static_cast<std::uint8_t>(RenewalWords::What::kAnswer);
  if (!reader.whole() || !known || zero != 0 || zeros != 0 || words.serial == 0 ||
      words.psn > kMostPsn || words.pairs != pairs || !is_sound(words.from, layer))
    return std::nullopt;
  for (std::size_t i = 0; i < kMostPairs; ++i) {
    const bool is_number = words.numbers[i] != 0 && words.numbers[i] <= kMostNumber;
    if (i < pairs ? !is_number : words.numbers[i] != 0) return std::nullopt;
  }
  words.what = static_cast<RenewalWords::What>(what);
  return words;
}

}  // namespace tutti::verbs
