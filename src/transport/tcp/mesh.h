// File: transport/tcp/mesh.h: authenticated connections between every two of some ranks.
//
// Every rank opens a listener at each of its addresses and publishes them as its endpoint info.
// Then the higher rank of each pair connects to the lower one, so that connections can't cross. It
// tries the addresses in the other's endpoint info, best first, again and again until the deadline.
// All of it is non-blocking, on one epoll of the calling thread.
//
// An incoming connection is pending until it passes the handshake. Pending connections that send
// nothing or nonsense delay no rank: their number and their time are bounded. If there are too
// many, one that has not sent its hello is closed, from the source that has most
// (base/net/evict.h). A connector never gives up a connection on which it has shown its proof
// unless the connection broke; so if a proven connection comes twice, the first one is dead, and
// the second one counts.
//
// Where there are several connections between ranks, no rank is done before all ranks have all
// theirs: one that loses a connection meanwhile makes it anew, and its peer still accepts it. Later
// the listeners stay open: a lost connection may be made anew (mesh_builder.h), between the same
// addresses, as other connections may use the others.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/handshake.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/endpoint_info.h"
#include "tutti/rendezvous.h"

namespace tutti::tcp {

inline constexpr int kMostConnections = 64;  // Between two ranks.

/// All that joining a mesh needs.
struct Joining {
  int me = 0;
  int rank_count = 1;
  /// Ranks to connect with; the relation is symmetric. Without this one; in any order.
  std::vector<int> peers;
  /// Between any two ranks. They are spread over interfaces that are equally good.
  int connections = 1;
  Secret secret{};
  /// The addresses that this rank offers, best first (choose_addresses).
  std::vector<InterfaceAddress> addresses;
  std::string host = host_name();
  /// The all-gather of set-up, as in Opening.
  std::function<Result<std::vector<Bytes>>(std::string_view phase, std::span<const std::byte> mine)>
      exchange;
  /// For the whole mesh. The time that is left at the start is also the longest silence that a
  /// connection survives later.
  Deadline deadline;
  /// As Opening's.
  std::function<Status()> look = nullptr;
};

class MeshBuilder;

struct Mesh {
  std::vector<Connection> connections;   // By peer, and by index; peers.size() * connections.
  std::shared_ptr<MeshBuilder> builder;  // Makes them anew; null: each is the only one to a peer.
  int unauthenticated = 0;               // Peers that failed the handshake.
};

/// Collective over all ranks (the exchange is), even those without peers. kTimeout names the ranks
/// that are missing, with host, interface, address and what was last tried; kSystem: no listener
/// could be opened.
/// `reached`: if that is not null, and it fails after it has connected to some, these connections.
Result<Mesh> connect_mesh(const Joining& joining, Mesh* reached = nullptr);

}  // namespace tutti::tcp
