// Where the store of a unique id listens, and which addresses the id has.
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/net/interfaces.h"
#include "bootstrap/sockets.h"
#include "support/catch.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

/// What is in an id, behind its mark and beside its secret.
struct Content {
  std::uint16_t port = 0;
  std::vector<std::string> addresses;
};
Content content_of(const UniqueId& id) {
  Content found;
  ByteReader reader(id.bytes);
  static_cast<void>(reader.take(4));
  found.port = ntohs(reader.number<std::uint16_t>());
  const auto count = reader.number<std::uint8_t>();
  static_cast<void>(reader.take(32));
  for (int i = 0; i < count; ++i) {
    const auto family = reader.number<std::uint8_t>();
    found.addresses.push_back(ip_address(reader.take(family == 4 ? 4 : 16), 0).ip_text());
  }
  return found;
}

bool listens(SocketAddress address, std::uint16_t port) {
  address.set_port(port);
  return static_cast<bool>(connect_to(address, Deadline::after(5s)));
}

/// An address of another interface than loopback; of length 0: there is none.
SocketAddress outer_address() {
  const auto all = own_addresses();
  return all.empty() ? SocketAddress{} : all.front();
}

const SocketAddress kLoopback = ipv4_address({htonl(INADDR_LOOPBACK)}, 0);

}  // namespace

TEST_CASE("a unique id's store listens at the interfaces that are named, and nowhere else") {
  const auto id = make_unique_id("lo,^::/0");
  REQUIRE(id);
  const Content content = content_of(*id);
  CHECK(content.addresses == std::vector<std::string>{"127.0.0.1"});
  CHECK(listens(kLoopback, content.port));
  if (outer_address().length != 0) CHECK(!listens(outer_address(), content.port));
  CHECK(unique_id_rendezvous(*id, Deadline::after(10s)));
  // The same interfaces are one server; no rule is another one, that listens everywhere.
  CHECK(content_of(*make_unique_id("lo,^::/0")).port == content.port);
  const Content everywhere = content_of(*make_unique_id());
  CHECK(everywhere.port != content.port);
  CHECK(everywhere.addresses.front() == "127.0.0.1");
  if (outer_address().length != 0) CHECK(listens(outer_address(), everywhere.port));
  CHECK(unique_id_rendezvous(*id, Deadline::after(10s)));
}

TEST_CASE("a unique id has all addresses of an interface but those that are of one link alone") {
  const auto facts = tcp::probe_interfaces();
  REQUIRE(facts);
  const SocketAddress outer = outer_address();
  if (outer.length == 0) return;
  const auto own = std::ranges::find_if(*facts, [&](const tcp::InterfaceAddress& one) {
    return one.address.length != 0 && one.address.ip_text() == outer.ip_text();
  });
  REQUIRE(own != facts->end());
  const auto id = make_unique_id(own->interface);
  REQUIRE(id);
  const Content content = content_of(*id);
  for (const tcp::InterfaceAddress& one : *facts) {
    if (one.interface != own->interface || one.address.length == 0) continue;
    const bool link_local = one.address.family() == AF_INET6 && one.address.is_link_local();
    const bool there = std::ranges::count(content.addresses, one.address.ip_text()) == 1;
    INFO(one.address.ip_text());
    CHECK(there != link_local);
    CHECK(listens(one.address, content.port) != link_local);
  }
  CHECK(!listens(kLoopback, content.port));
  CHECK(unique_id_rendezvous(*id, Deadline::after(10s)));
}

TEST_CASE("interfaces that are not there are an error of making a unique id") {
  const auto none = make_unique_id("nowhere7");
  REQUIRE(!none);
  CHECK(none.error().code == Code::kInvalidArgument);
  CHECK_THAT(none.error().what, Catch::Contains("TUTTI_NET_INTERFACES='nowhere7'") &&
                                    Catch::Contains("(not in the rule)"));
  CHECK(!make_unique_id("lo lo"));
  // A rule that only excludes others leaves loopback for ranks that are all on this host.
  std::string rule = "^";
  for (const SocketAddress& one : own_addresses())
    rule += (rule == "^" ? "" : ",") + one.ip_text() + (one.family() == AF_INET ? "/32" : "/128");
  if (rule == "^") rule = "^nowhere7";
  const auto here = make_unique_id(rule + ",docker*,br-*,veth*,virbr*");
  REQUIRE(here);
  CHECK(content_of(*here).addresses.front() == "127.0.0.1");
  CHECK(!make_unique_id(rule + ",lo"));
}

}  // namespace tutti::bootstrap
