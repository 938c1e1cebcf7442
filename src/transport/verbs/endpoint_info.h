// File: transport/verbs/endpoint_info.h: a rank's endpoint info, which the others get before they
// connect: its port's address and where its memory is, or why it has none.
//
//   1 · host, device, address as texts (length u8, bytes) · GID · LID u16 · link layer u8 · MTU u8
//   · four times (near, replica, records, apart): address u64 · bytes u64 · key u32; the last one
//   all zero if no slots are apart 0 · code u8 · text: what went wrong
//
// They come through the rendezvous, from ranks that are believed; their size is bounded all the
// same.
#pragma once
#include <span>
#include <string>

#include "transport/verbs/link.h"
#include "tutti/rendezvous.h"

namespace tutti::verbs {

inline constexpr std::size_t kMostEndpointText = 64;
inline constexpr std::size_t kMostErrorText = 400;

struct EndpointInfo {
  std::string host, device, address;  // For messages only.
  Gid gid{};
  std::uint16_t lid = 0;
  LinkLayer layer = kRoce;
  std::uint8_t mtu = 0;  // As ibv_mtu.
  RemoteMemory near, replica, records, gpudirect;
};

/// Texts are cut.
Bytes encode(const EndpointInfo& info);
Bytes encode(const Error& error);
/// kMismatch: no card; or the error that the rank told.
Result<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes);

}  // namespace tutti::verbs
