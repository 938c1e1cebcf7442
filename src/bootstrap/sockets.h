// File: bootstrap/sockets.h: TCP sockets over IPv4 and IPv6, with deadlines.
//
// Every socket here is non-blocking and closed on exec; a function that waits does so in poll,
// until its deadline. Any thread.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/net/socket_address.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap {

/// The addresses of the name, in the resolver's order. The system's resolver has no deadline, so a
/// separate thread asks it. At the deadline that thread is left alone, and the error is kTimeout.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Deadline deadline);

/// Addresses of this machine at which others may reach it, best first: IPv4 before IPv6, neither
/// loopback and link-local ones nor those of container and virtual-machine bridges.
std::vector<SocketAddress> own_addresses();

struct Listening {
  std::vector<Fd> sockets;
  int port = 0;
};
/// Listens at those addresses of this host that `host` stands for. It listens at all addresses if
/// `host` is empty, or, with a warning, if it stands for no address of this host. A name other than
/// "localhost" that stands only for loopback here is the host's own name: then it listens at all
/// addresses that other hosts may know (own_addresses). Port 0 takes a free one. kSystem names the
/// address and the reason.
Result<Listening> listen_at(const std::string& host, int port, Deadline deadline);
/// Listens at all of these addresses of this host, at one free port. kSystem, as above.
Result<Listening> listen_at(std::span<const SocketAddress> addresses);

/// Waits until the socket is ready for `events` (or broken). kTimeout at the deadline.
Status wait_for(int socket, short events, Deadline deadline);
/// kPeerFailed: nobody listens there; kTimeout: no answer.
Result<Fd> connect_to(const SocketAddress& address, Deadline deadline);
/// kTimeout, or kPeerFailed once the other side has gone.
Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline);
/// At least one byte and at most all of `into`; how many came.
Result<std::size_t> receive_some(int socket, std::span<std::byte> into, Deadline deadline);
Status receive_all(int socket, std::span<std::byte> into, Deadline deadline);

/// Small messages must not wait for each other; the death of a peer's machine must be noticed one
/// day.
void set_stream_options(int socket);

}  // namespace tutti::bootstrap
