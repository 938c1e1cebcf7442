// TCP transport: ranks on any hosts, over authenticated connections (tcp/mesh.h).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "transport/net/endpoint.h"
#include "transport/tcp/mesh.h"
#include "transport/tcp/network.h"

namespace tutti::tcp {
namespace {

// A stream takes a CPU at either end, which does not keep up with the fastest interfaces.
constexpr double kMostGigabytesPerSecond = 5;
constexpr double kEfficiency = 0.94;  // Headers and pauses.

constexpr std::size_t kMostRails = 8;  // Connections between two ranks.

// How long a rank waits for a link that flaps, and the pause between two looks at it.
constexpr std::chrono::milliseconds kCarrierWait{2000}, kCarrierLook{50};

struct Agreed {
  Secret secret{};
  double gigabytes_per_second = 0;  // The slowest interface's; 0: none says.
  int rails = 1;                    // Interfaces that the rank with the fewest has.
};

/// A rank's description of itself.
struct Means {
  std::uint32_t speed_mbps = 0, rails = 1;
};

/// Interfaces that are as good as the best one.
std::size_t count_rails(std::span<const InterfaceAddress> addresses) {
  std::vector<std::string_view> names;
  const InterfaceAddress& first = addresses.front();
  for (const InterfaceAddress& one : addresses) {
    if (one.speed_mbps != first.speed_mbps || one.address.family() != first.address.family() ||
        one.loopback != first.loopback)
      continue;
    if (std::ranges::find(names, one.interface) == names.end()) names.emplace_back(one.interface);
  }
  return std::min(names.size(), kMostRails);
}

/// Rank 0 makes the secret; the rendezvous, which is believed, carries it. Each rank adds how fast
/// its interface is, and how many there are.
Result<Agreed> agree(const Opening& opening, const Means& own) {
  Agreed agreed;
  if (opening.me == 0) {
    TUTTI_TRY(agreed.secret, random_bytes());
  }
  const auto own_bytes = std::as_bytes(std::span(&own, 1));
  Bytes mine(own_bytes.begin(), own_bytes.end());
  if (opening.me == 0) mine.insert(mine.end(), agreed.secret.begin(), agreed.secret.end());
  TUTTI_TRY(const auto all, opening.exchange("tcp secret", mine));
  std::uint32_t slowest = 0, rails = own.rails;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != sizeof(Means) + (rank == 0 ? agreed.secret.size() : 0)) {
      return Error{Code::kMismatch,
                   "tcp: rank " + std::to_string(rank) + " speaks another version"};
    }
    Means theirs;
    std::memcpy(&theirs, all[rank].data(), sizeof(theirs));
    if (theirs.speed_mbps != 0)
      slowest = slowest == 0 ? theirs.speed_mbps : std::min(slowest, theirs.speed_mbps);
    rails = std::min(rails, theirs.rails);
  }
  std::memcpy(agreed.secret.data(), all[0].data() + sizeof(Means), agreed.secret.size());
  agreed.rails = static_cast<int>(std::clamp<std::uint32_t>(rails, 1, kMostRails));
  agreed.gigabytes_per_second =
      std::min(kEfficiency * slowest / 8e3 * agreed.rails, kMostGigabytesPerSecond);
  return agreed;
}

/// The addresses that this rank offers. If a carrier is all that is missing, it may be back in a
/// moment: a link flaps, or a cable is moved.
Result<ChosenAddresses> own_addresses(const Opening& opening) {
  const Deadline last{std::min(Deadline::after(kCarrierWait).at, opening.deadline.at)};
  const AddressPreference preference{.rule = opening.net_interfaces,
                                     .one_host = net::on_one_host(opening.peers)};
  for (;;) {
    TUTTI_TRY(auto facts, probe_interfaces());
    auto chosen = choose_addresses(facts, preference);
    if (chosen || last.passed()) return chosen;
    for (InterfaceAddress& one : facts) one.running = one.running || one.up;
    if (!choose_addresses(facts, preference)) return chosen;
    std::this_thread::sleep_for(kCarrierLook);
  }
}

Result<net::Connected> connect(const net::Joining& to) {
  const Opening& opening = to.opening;
  TUTTI_TRY(auto chosen, own_addresses(opening));
  Joining joining;
  joining.me = opening.me;
  joining.rank_count = static_cast<int>(opening.peers.size());
  joining.peers = to.far;
  const Means own{static_cast<std::uint32_t>(chosen.addresses.front().speed_mbps),
                  static_cast<std::uint32_t>(count_rails(chosen.addresses))};
  TUTTI_TRY(auto wakers, Wakers::make(opening.peers.size()));
  TUTTI_TRY(const Agreed agreed, agree(opening, own));
  joining.secret = agreed.secret;
  joining.connections = agreed.rails;
  joining.addresses = std::move(chosen.addresses);
  joining.exchange = opening.exchange;
  joining.deadline = opening.deadline;
  joining.look = opening.look;
  Mesh reached;
  auto mesh = connect_mesh(joining, &reached);

  NetworkCost cost = tcp_transport.network;
  if (agreed.gigabytes_per_second > 0) cost.link.gigabytes_per_second = agreed.gigabytes_per_second;
  TUTTI_TRY(auto network, TcpNetwork::open(mesh ? *std::move(mesh) : std::move(reached),
                                           std::move(wakers), opening.peers.size(), cost));
  // Its mesh was moved, or else its error stands. NOLINTNEXTLINE(bugprone-use-after-move)
  return net::Connected{std::move(network), mesh ? ok() : Status(std::move(mesh.error()))};
}

Result<std::unique_ptr<Endpoint>> open(const Opening& opening) {
  return net::open_endpoint(opening, "tcp", connect);
}

}  // namespace
}  // namespace tutti::tcp

namespace tutti {

constinit const Transport tcp_transport{
    .name = "tcp",
    .joins = "any ranks",
    .reach = [](const Peer&, const Peer&) { return true; },
    .open = tcp::open,
    // Ten gigabits a second. Two hosts as namespaces of one machine are alike.
    .network = {.link = {15, 1.2}, .message_us = 3}};

}  // namespace tutti
