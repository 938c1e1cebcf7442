#include "base/net/socket_address.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace tutti {

SocketAddress SocketAddress::of(const sockaddr* address) {
  SocketAddress copy;
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6))
    return copy;
  copy.length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&copy.storage, address, copy.length);
  return copy;
}

std::span<const std::byte> SocketAddress::ip() const& {
  const auto* const at = reinterpret_cast<const std::byte*>(&storage);
  switch (family()) {
    case AF_INET: return {at + offsetof(sockaddr_in, sin_addr), sizeof(in_addr)};
    case AF_INET6: return {at + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr)};
    default: return {};
  }
}

template <class Family>
Family SocketAddress::as() const {
  Family plain;
  std::memcpy(&plain, &storage, sizeof(plain));
  return plain;
}
template sockaddr_in SocketAddress::as() const;
template sockaddr_in6 SocketAddress::as() const;

std::string SocketAddress::ip_text() const {
  std::array<char, INET6_ADDRSTRLEN> name{};
  if (family() == AF_INET6) {
    const auto plain = as<sockaddr_in6>();
    inet_ntop(AF_INET6, &plain.sin6_addr, name.data(), name.size());
    std::string text(name.data());
    std::array<char, IF_NAMESIZE> scope{};
    if (plain.sin6_scope_id != 0 && if_indextoname(plain.sin6_scope_id, scope.data()) != nullptr)
      text += "%" + std::string(scope.data());
    return text;
  }
  const auto plain = as<sockaddr_in>();
  return inet_ntop(AF_INET, &plain.sin_addr, name.data(), name.size());
}

std::string SocketAddress::text() const {
  const std::string number = ":" + std::to_string(port());
  return family() == AF_INET6 ? "[" + ip_text() + "]" + number : ip_text() + number;
}

std::uint16_t SocketAddress::port() const {
  return ntohs(as<sockaddr_in>().sin_port);  // It lies at the same place in both families.
}

void SocketAddress::set_port(std::uint16_t port) {
  const std::uint16_t number = htons(port);
  std::memcpy(reinterpret_cast<std::byte*>(&storage) + offsetof(sockaddr_in, sin_port), &number,
              sizeof(number));
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET6) {
    const auto plain = as<sockaddr_in6>();
    return IN6_IS_ADDR_LOOPBACK(&plain.sin6_addr);
  }
  return ntohl(as<sockaddr_in>().sin_addr.s_addr) >> 24 == 127;
}

bool SocketAddress::is_link_local() const {
  if (family() == AF_INET6) {
    const auto plain = as<sockaddr_in6>();
    return IN6_IS_ADDR_LINKLOCAL(&plain.sin6_addr);
  }
  return ntohl(as<sockaddr_in>().sin_addr.s_addr) >> 16 == ((169U << 8) | 254U);
}

SocketAddress ip_address(std::span<const std::byte> ip, std::uint16_t port) {
  in_addr ipv4{};
  in6_addr ipv6{};
  if (ip.size() == sizeof(ipv4)) {
    std::memcpy(&ipv4, ip.data(), sizeof(ipv4));
    return ipv4_address(ipv4, port);
  }
  std::memcpy(&ipv6, ip.data(), sizeof(ipv6));
  return ipv6_address(ipv6, port);
}

SocketAddress ipv4_address(const in_addr& address, std::uint16_t port) {
  sockaddr_in plain{};
  plain.sin_family = AF_INET;
  plain.sin_addr = address;
  plain.sin_port = htons(port);
  return SocketAddress::of(reinterpret_cast<const sockaddr*>(&plain));
}

SocketAddress ipv6_address(const in6_addr& address, std::uint16_t port, std::uint32_t scope) {
  sockaddr_in6 plain{};
  plain.sin6_family = AF_INET6;
  plain.sin6_addr = address;
  plain.sin6_port = htons(port);
  plain.sin6_scope_id = scope;
  return SocketAddress::of(reinterpret_cast<const sockaddr*>(&plain));
}

SocketAddress own_end(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  return getsockname(socket, address.get(), &address.length) == 0 ? address : SocketAddress{};
}

SocketAddress far_end(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  return getpeername(socket, address.get(), &address.length) == 0 ? address : SocketAddress{};
}

bool same_prefix(const SocketAddress& a, const SocketAddress& b, int bits) {
  if (a.family() != b.family()) return false;
  const auto first = a.ip(), second = b.ip();
  const auto count =
      static_cast<std::size_t>(std::clamp(bits, 0, static_cast<int>(8 * first.size())));
  if (!std::ranges::equal(first.first(count / 8), second.first(count / 8))) return false;
  return count % 8 == 0 ||
         ((first[count / 8] ^ second[count / 8]) >> static_cast<int>(8 - count % 8)) == std::byte{};
}

bool is_virtual_bridge(const std::string& interface_name) {
  constexpr std::string_view kPrefixes[] = {"docker", "br-",     "veth", "virbr", "vnet",
                                            "cni",    "flannel", "cali", "lxc",   "lxdb",
                                            "nerd",   "podman",  "tap"};
  return std::ranges::any_of(
      kPrefixes, [&](std::string_view prefix) { return interface_name.starts_with(prefix); });
}

}  // namespace tutti
