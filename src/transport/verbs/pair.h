// File: transport/verbs/pair.h: how a queue pair is connected to one of another rank.
#pragma once
#include <cstdint>
#include <string>

#include "transport/verbs/device.h"

namespace tutti::verbs {

inline constexpr std::uint32_t kMostPsn = 0xffffff;  // 24 bits each.
inline constexpr std::uint32_t kMostNumber = 0xffffff;
inline constexpr std::uint16_t kMostUnicastLid = 0xbfff;

/// A port, as a queue pair of another rank has to know it.
struct PortAddress {
  Gid gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = 0;  // As ibv_mtu.
};
/// The address of a device's port, as it was last asked.
PortAddress address_of(const Device& device);
/// "10.0.0.1", or "LID 7".
std::string text_of(const PortAddress& address, LinkLayer layer);
/// What a link is called: "verbs: rank 3 (node7) over mlx5_0:1, 10.0.0.1 to mlx5_0:1 10.0.0.2".
std::string link_name(int peer, const std::string& peer_host, const Device& device,
                      const std::string& peer_device, const PortAddress& peer_address);

/// Both ends of a connection: the peer's queue pair by its number, and where each side's packets
/// begin to be counted.
struct PairEnds {
  PortAddress peer;
  std::uint32_t peer_number = 0;
  std::uint32_t peer_psn = 0, own_psn = 0;
};
/// Makes a new queue pair of that device ready to send and to receive. `to`: the peer, for
/// messages.
Status connect_pair(const Device& device, ibv_qp& pair, const PairEnds& ends,
                    const std::string& to);

}  // namespace tutti::verbs
