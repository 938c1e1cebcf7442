// File: transport/ucx/meeting.h: ranks become a network: who is where, and whether the way works.
//
// Each rank tells the others by its card where its worker is, through the rendezvous, which is
// believed. Then all say hello to each other; that UCX knows a way is only seen when something
// comes.
//
//   version u32 · UCX's version u32 · host length u8 · host · key (16) · worker's address
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "transport/net/endpoint.h"
#include "transport/ucx/network.h"

namespace tutti::ucx {

inline constexpr std::size_t kMostHostBytes = 64;
inline constexpr std::size_t kMostAddressBytes = std::size_t{64} << 10;

struct Card {
  std::uint32_t ucx_version = 0;  // Major << 16 | minor: two of them may speak differently.
  std::string host;               // For messages only.
  Key key{};                      // For messages to this rank.
  Bytes address;
};

Bytes encode(const Card& card);
/// Empty: no card of this version of ours.
std::optional<Card> parse_card(std::span<const std::byte> bytes);

/// Collective over all of to.opening.peers. kMismatch: another UCX; kSystem: no way to a rank;
/// kTimeout, kPeerFailed: one did not come or went; each names the rank and its host.
Result<std::unique_ptr<net::Network>> meet(const net::Joining& to);

}  // namespace tutti::ucx
