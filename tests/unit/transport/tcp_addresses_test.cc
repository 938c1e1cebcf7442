// What ranks tell each other of their addresses, and which of a peer's they try first.
#include <arpa/inet.h>

#include <string>
#include <vector>

#include "support/catch.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

InterfaceAddress at(const char* interface, const char* ip, int bits, int speed) {
  InterfaceAddress one;
  one.interface = interface;
  in_addr ipv4{};
  in6_addr ipv6{};
  if (inet_pton(AF_INET, ip, &ipv4) == 1)
    one.address = ipv4_address(ipv4, 4711);
  else if (inet_pton(AF_INET6, ip, &ipv6) == 1)
    one.address = ipv6_address(ipv6, 4711);
  one.prefix_bits = bits;
  one.speed_mbps = speed;
  one.loopback = one.address.is_loopback();
  return one;
}

std::vector<std::string> order(const std::vector<InterfaceAddress>& mine,
                               const std::vector<InterfaceAddress>& theirs) {
  std::vector<std::string> names;
  for (const Candidate& one : candidates(mine, {"host", theirs}))
    names.push_back(one.there.address.ip_text());
  return names;
}

TEST_CASE("endpoint info comes out as it went in") {
  EndpointInfo info{"node7", {at("eth0", "10.0.0.7", 24, 1000), at("ib0", "fd00::7", 64, 200'000)}};
  const Bytes bytes = encode(info);
  const auto parsed = parse_endpoint_info(bytes);
  REQUIRE(parsed);
  CHECK(parsed->host == "node7");
  REQUIRE(parsed->addresses.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(parsed->addresses[i].interface == info.addresses[i].interface);
    CHECK(parsed->addresses[i].address.text() == info.addresses[i].address.text());
    CHECK(parsed->addresses[i].prefix_bits == info.addresses[i].prefix_bits);
    CHECK(parsed->addresses[i].speed_mbps == info.addresses[i].speed_mbps);
  }
  for (std::size_t size = 0; size < bytes.size(); ++size)
    CHECK_FALSE(parse_endpoint_info(std::span(bytes).first(size)));
  Bytes longer = bytes;
  longer.push_back(std::byte{});
  CHECK_FALSE(parse_endpoint_info(longer));
  // Names from outside are printed: nothing else than printable ASCII.
  CHECK(parse_endpoint_info(encode(EndpointInfo{"evil\nhost\x1b[2J", {}}))->host ==
        "evil?host?[2J");
  Bytes evil = encode(EndpointInfo{"node7", {}});
  evil[2] = std::byte{'\n'};
  CHECK_FALSE(parse_endpoint_info(evil));
  info.addresses.assign(100, at("eth0", "10.0.0.7", 24, 1));
  CHECK(parse_endpoint_info(encode(info))->addresses.size() == kMostAddresses);
}

TEST_CASE("addresses of a peer are tried in the order that is likely to work, and be fast") {
  const auto eth = at("eth0", "10.0.0.1", 24, 1000), ib = at("ib0", "192.168.5.1", 24, 100'000);
  const auto their_eth = at("eth0", "10.0.0.7", 24, 1000);
  const auto their_ib = at("ib0", "192.168.5.7", 24, 100'000);
  using Names = std::vector<std::string>;
  CHECK(order({eth, ib}, {their_eth, their_ib}) == Names{"192.168.5.7", "10.0.0.7"});
  // A fast network that this rank is not in comes after a slow one that it is in.
  CHECK(order({eth}, {their_ib, their_eth}) == Names{"10.0.0.7", "192.168.5.7"});
  // Only one side counts them to one network: that proves nothing.
  CHECK(order({at("eth0", "10.0.0.1", 8, 10)}, {at("eth0", "10.1.0.7", 24, 10), their_eth}) ==
        Names{"10.0.0.7", "10.1.0.7"});
  CHECK(order({eth}, {at("eth0", "fd00::7", 64, 1), their_eth}) == Names{"10.0.0.7", "fd00::7"});
  // Loopback is only for ranks at the same loopback.
  CHECK(order({eth}, {at("lo", "127.0.0.1", 8, 0)}) == Names{});
  CHECK(order({at("lo", "127.0.0.1", 8, 0)}, {at("lo", "127.0.0.1", 8, 0)}) == Names{"127.0.0.1"});
  // A link-local address is tried on each interface that has one too.
  auto local = at("eth5", "fe80::1", 64, 10);
  CHECK(order({eth}, {at("eth0", "fe80::7", 64, 10)}) == Names{});
  local.address = ipv6_address(local.address.as<sockaddr_in6>().sin6_addr, 0, 1);  // Scope: lo.
  CHECK(order({local}, {at("eth0", "fe80::7", 64, 10)}) == Names{"fe80::7%lo"});
}

TEST_CASE("connections are spread over networks that are equally good, and over no others") {
  const auto count = [](const std::vector<InterfaceAddress>& mine,
                        const std::vector<InterfaceAddress>& theirs) {
    return rails(candidates(mine, {"host", theirs}));
  };
  const auto a = at("ib0", "192.168.5.1", 24, 100'000), b = at("ib1", "192.168.6.1", 24, 100'000);
  const auto c = at("ib0", "192.168.5.7", 24, 100'000), d = at("ib1", "192.168.6.7", 24, 100'000);
  CHECK(count({a, b}, {c, d}) == 2);
  CHECK(count({a}, {c, d}) == 1);
  CHECK(count({a, b}, {c, at("eth0", "192.168.6.7", 24, 1000)}) == 1);
  CHECK(count({a, b}, {c, at("ib0", "192.168.6.7", 24, 100'000)}) == 1);
  CHECK(count({a}, {}) == 0);
}

}  // namespace
}  // namespace tutti::tcp
