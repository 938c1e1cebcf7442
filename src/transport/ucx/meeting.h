// File: transport/ucx/meeting.h: ranks become a network: where each rank is, and whether the way
// works.
//
// Each rank publishes its worker's address as its endpoint info, through the rendezvous, which is
// believed. Then all send each other a hello: only an arriving message shows that UCX knows a way.
//
//   version u32 · UCX's version u32 · host length u8 · host · key (16) · worker's address
#pragma once
#include <optional>
#include <string>

#include "transport/net/endpoint.h"
#include "transport/ucx/network.h"

namespace tutti::ucx {

inline constexpr std::size_t kMostHostBytes = 64;
inline constexpr std::size_t kMostAddressBytes = std::size_t{64} << 10;

struct EndpointInfo {
  std::uint32_t ucx_version = 0;  // Major << 16 | minor: two of them may speak differently.
  std::string host;               // For messages only.
  Key key{};                      // For messages to this rank.
  Bytes address;
};

Bytes encode(const EndpointInfo& info);
/// Empty: no card of this version of ours.
std::optional<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes);

/// Collective over all of to.opening.peers. kMismatch: another UCX; kSystem: no way to a rank;
/// kTimeout, kPeerFailed: one did not come or went; each names the rank and its host.
Result<net::Connected> meet(const net::Joining& to);

}  // namespace tutti::ucx
