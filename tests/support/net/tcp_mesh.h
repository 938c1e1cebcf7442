// File: support/net/tcp_mesh.h: ranks that are threads and join a TCP mesh over loopback.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "transport/tcp/mesh.h"

namespace tutti::test {

inline tcp::InterfaceAddress loopback_address() {
  tcp::InterfaceAddress one;
  one.interface = "lo";
  one.address = ipv4_address({htonl(INADDR_LOOPBACK)}, 0);
  one.prefix_bits = 8;
  one.loopback = true;
  return one;
}

/// The options with which rank `me` of `ranks` joins all others; its exchange goes over `meeting`.
inline tcp::Joining joining(const std::shared_ptr<Rendezvous>& meeting, int me, int ranks,
                            std::chrono::milliseconds timeout = std::chrono::seconds(100)) {
  tcp::Joining one;
  one.me = me;
  one.rank_count = ranks;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != me) one.peers.push_back(peer);
  }
  one.secret.fill(std::byte{42});
  one.addresses = {loopback_address()};
  one.host = "host" + std::to_string(me);
  one.deadline = Deadline::after(timeout);
  one.exchange = [=, deadline = one.deadline](std::string_view phase,
                                              std::span<const std::byte> mine) {
    return exchange(*meeting, Rank{me}, ranks, phase, mine, deadline);
  };
  return one;
}

/// All ranks join, each on a thread of its own; `change` may change what they need before.
inline std::vector<Result<tcp::Mesh>> join_mesh(
    int ranks, const std::function<void(tcp::Joining&)>& change = {},
    std::chrono::milliseconds timeout = std::chrono::seconds(100)) {
  const auto meeting = memory_rendezvous();
  std::vector<std::optional<Result<tcp::Mesh>>> meshes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int me = 0; me < ranks; ++me) {
    threads.emplace_back([&, me] {
      tcp::Joining one = joining(meeting, me, ranks, timeout);
      if (change) change(one);
      meshes[static_cast<std::size_t>(me)] = tcp::connect_mesh(one);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Result<tcp::Mesh>> joined;
  joined.reserve(meshes.size());
  for (auto& mesh : meshes) joined.push_back(*std::move(mesh));
  return joined;
}

}  // namespace tutti::test
