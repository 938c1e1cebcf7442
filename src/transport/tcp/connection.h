// File: transport/tcp/connection.h: one authenticated TCP connection, and how it is called in
// messages.
#pragma once
#include <chrono>
#include <string>

#include "base/fd.h"
#include "tutti/result.h"

namespace tutti::tcp {

struct Connection {
  int peer = -1;
  int index = 0;            // Index among the connections with that peer.
  std::string where;        // "rank 3 (node7) over eth0, 10.0.0.1:40112 to 10.0.0.7:4711".
  int silence_ms = 0;       // After so long without an answer the system gives the peer up.
  int host_timeout_ms = 0;  // After so long without one from its host we do; 0: never.
  Fd socket;                // Not blocking.
};

/// Small messages don't wait for others; a peer that does not answer for that long is given up,
/// whether something was sent to it (TCP_USER_TIMEOUT) or not (keepalive). The first also ends a
/// connection to a peer that answers but takes nothing for so long (its window stays closed).
/// Buffers are left to the kernel, which grows them as needed: SO_SNDBUF and SO_RCVBUF would pin
/// them at net.core.wmem_max and rmem_max, which are far below tcp_wmem and tcp_rmem by default.
/// Before the socket connects or listens: where the system's congestion control is BBR, this one
/// takes Reno. BBR sends at the rate that it has seen, by timers, and of bursts with pauses between
/// (a tile is sent, then one is reduced) it sees too low a one: docs/decisions/0028-no-pacing.md. A
/// route's `congctl` comes before that.
/// A connection that is silent for half of `host_timeout` asks the peer's host for an answer.
void set_options(int socket, std::chrono::milliseconds silence,
                 std::chrono::milliseconds host_timeout);

/// Its host has not answered for host_timeout_ms. kPeerFailed.
Error vanished(const Connection& connection);
/// The meaning of a connection's errno: "rank 3 (node7) over ...: the connection was reset while
/// sending: its process has ended". kPeerFailed.
Error broken(const Connection& connection, const char* operation, int error_number);
/// The same for a connection that the peer has closed.
Error closed(const Connection& connection, const char* operation);

}  // namespace tutti::tcp
