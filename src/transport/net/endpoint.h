// File: transport/net/endpoint.h: ranks on any hosts, joined by a network.
//
// Those of one host share a region; of all others each rank has a replica of its own, which a wire
// over the network keeps up to date (net/replicator.h). A transport only has to make the network.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/net/network.h"
#include "transport/transport.h"

namespace tutti::net {

/// The ranks that a network is made for, and the memory that it carries: a frame's payload comes
/// from either, or from the link's own small buffers.
struct Joining {
  const Opening& opening;
  std::vector<int> far;          // Ranks to join, ascending.
  std::span<std::byte> near;     // The region shared with ranks of this host: own sections.
  std::span<std::byte> replica;  // Sections of those that are far.
};

/// What connecting came to. If not all ranks were reached, the network joins those that were: they
/// may have joined, and have to hear of it.
struct Connected {
  std::unique_ptr<Network> network;
  Status all = {};
};

/// Collective over all of opening.peers: `connect` is called on each of them. If all ranks share a
/// host the network is what somebody wants to see: then it joins all of them. `name`: the
/// transport's.
Result<std::unique_ptr<Endpoint>> open_endpoint(
    const Opening& opening, std::string_view name,
    const std::function<Result<Connected>(const Joining&)>& connect);

/// Whether all of them are ranks of one host.
bool on_one_host(std::span<const Peer> peers);

}  // namespace tutti::net
