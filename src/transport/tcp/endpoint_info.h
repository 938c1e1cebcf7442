// File: transport/tcp/endpoint_info.h: a rank's endpoint info: the addresses of its listeners,
// which the others get before they connect.
//
//   host length u8 · host · count u8 · count addresses:
//   interface length u8 · interface · 4 or 6 · IPv4 or IPv6 address · port u16 · prefix bits u8 ·
//   speed in Mbit/s u32
//
// They come through the rendezvous, from ranks that are believed; their size is bounded all the
// same.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/net/interfaces.h"
#include "tutti/rendezvous.h"

namespace tutti::tcp {

inline constexpr std::size_t kMostHostBytes = 64;
inline constexpr std::size_t kMostInterfaceBytes = 15;  // Linux's limit.

struct EndpointInfo {
  std::string host;  // For messages only.
  std::vector<InterfaceAddress> addresses;
};

/// Names are cut, and what is no printable ASCII in them becomes "?".
Bytes encode(const EndpointInfo& info);
/// Empty: no card. Scopes of link-local addresses are not carried: they mean nothing elsewhere.
std::optional<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes);

/// The host's own name, for messages: it is never looked up.
std::string host_name();

/// One address to try.
struct Candidate {
  InterfaceAddress there;
  int grade = 0;       // 0: in a network of ours; 1: of a family that we have; 2: any other.
  int speed_mbps = 0;  // The slower end's; 0: neither says.
};
/// The order in which a rank with the addresses `mine` should try those of a peer: addresses in a
/// network of its own first, then the fastest. Link-local addresses get the scope of each interface
/// of ours that has one. Loopback addresses are only for ranks that have one too. Pure.
std::vector<Candidate> candidates(std::span<const InterfaceAddress> mine, const EndpointInfo& info);
/// How many candidates at the front are as good as the first one, each on an interface of its own:
/// several connections are spread over them.
std::size_t rails(std::span<const Candidate> candidates);

}  // namespace tutti::tcp
