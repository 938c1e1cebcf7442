// File: base/net/socket_address.h: an IP address and a port, as a value.
//
// Everything that speaks TCP uses it: the rendezvous and the network transport. Any thread.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  /// A copy; of length 0 if there is none, or it is of another protocol.
  static SocketAddress of(const sockaddr* address);
  /// "10.0.0.1:29500" or "[fd00::2]:29500"; a link-local one with its scope, "[fe80::2%eth0]:1".
  std::string text() const;
  /// The same without the port, and without brackets.
  std::string ip_text() const;
  int family() const { return storage.ss_family; }
  /// 4 or 16 bytes within this object, so not of a temporary; empty if it is neither.
  std::span<const std::byte> ip() const&;
  std::span<const std::byte> ip() const&& = delete;
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  bool is_loopback() const;
  /// 169.254.0.0/16 or fe80::/10: means something on one link only.
  bool is_link_local() const;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// As the protocol's own type, sockaddr_in or sockaddr_in6.
  template <class Family>
  Family as() const;
};

/// `ip`: 4 or 16 bytes.
SocketAddress ip_address(std::span<const std::byte> ip, std::uint16_t port);
SocketAddress ipv4_address(const in_addr& address, std::uint16_t port);
/// `scope` is the index of the interface on which a link-local address has its meaning.
SocketAddress ipv6_address(const in6_addr& address, std::uint16_t port, std::uint32_t scope = 0);

/// The address that a socket is bound to, and the one that it is connected to; of length 0 if it is
/// none.
SocketAddress own_end(int socket);
SocketAddress far_end(int socket);

/// Whether the first `bits` bits of two addresses of the same family are alike.
bool same_prefix(const SocketAddress& a, const SocketAddress& b, int bits);

/// Bridges and tunnels that container engines and hypervisors make: their addresses mean something
/// else, or nothing, on other hosts.
bool is_virtual_bridge(const std::string& interface_name);

}  // namespace tutti
