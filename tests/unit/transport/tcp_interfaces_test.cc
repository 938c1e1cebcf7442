// Which addresses a rank offers, as a table of machines that people have.
#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/net/interfaces.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti::tcp {
namespace {

SocketAddress ip(const std::string& text) {
  in_addr ipv4{};
  in6_addr ipv6{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) return ipv4_address(ipv4, 0);
  REQUIRE(inet_pton(AF_INET6, text.c_str(), &ipv6) == 1);
  return ipv6_address(ipv6, 0);
}

/// "eth0 10.0.0.3/24 1000", with words behind it: down, dark (no carrier), loopback. "-" for an
/// address: none.
InterfaceAddress fact(const std::string& text) {
  std::istringstream words(text);
  InterfaceAddress one;
  std::string address, word;
  words >> one.interface >> address >> one.speed_mbps;
  if (address != "-") {
    const std::size_t slash = address.find('/');
    one.address = ip(address.substr(0, slash));
    one.prefix_bits = std::stoi(address.substr(slash + 1));
  }
  while (words >> word) {
    if (word == "down") one.up = false;
    if (word == "dark") one.running = false;
    if (word == "loopback") one.loopback = true;
  }
  return one;
}

struct Case {
  const char* name;
  std::vector<const char*> facts;
  const char* rule;
  bool one_host;
  std::vector<const char*> peers;
  std::vector<const char*> chosen;  // "interface ip"; empty: an error.
  const char* said;                 // What the sentence, or the error, has in it.
};

const char* const kLo4 = "lo 127.0.0.1/8 0 loopback";
const char* const kLo6 = "lo ::1/128 0 loopback";

const std::vector<Case> kCases{
    {"a laptop",
     {kLo4, kLo6, "wlan0 192.168.1.7/24 0", "wlan0 fe80::1/64 0"},
     "",
     false,
     {},
     {"wlan0 192.168.1.7"},
     "not lo (loopback), wlan0 (link-local address)"},
    {"a container host",
     {kLo4, "eth0 10.0.0.3/24 10000", "docker0 172.17.0.1/16 0", "br-5f2a 172.18.0.1/16 0",
      "vethabc - 10000", "virbr0 192.168.122.1/24 0 dark"},
     "",
     false,
     {},
     {"eth0 10.0.0.3"},
     "docker0 br-5f2a (bridge of containers or virtual machines), vethabc (no "
     "address), virbr0 (no carrier)"},
    {"a hypervisor's own bridge is an ordinary interface",
     {kLo4, "vmbr0 10.0.0.3/24 0"},
     "",
     false,
     {},
     {"vmbr0 10.0.0.3"},
     "vmbr0 10.0.0.3 (speed unknown)"},
    {"inside a container",
     {kLo4, "eth0 172.17.0.2/16 10000"},
     "",
     false,
     {},
     {"eth0 172.17.0.2"},
     "10 Gbit/s"},
    {"127.0.1.1 on another interface",
     {kLo4, "dummy0 127.0.1.1/32 0", "eth0 10.0.0.3/24 1000"},
     "",
     false,
     {},
     {"eth0 10.0.0.3"},
     "not lo dummy0 (loopback)"},
    {"fast before slow",
     {kLo4, "eno1 10.0.0.3/24 1000", "ib0 192.168.5.3/24 100000"},
     "",
     false,
     {},
     {"ib0 192.168.5.3", "eno1 10.0.0.3"},
     "ib0 192.168.5.3 (100 Gbit/s), eno1"},
    {"the peers' network before a faster one",
     {kLo4, "eno1 10.0.0.3/24 1000", "ib0 192.168.5.3/24 100000"},
     "",
     false,
     {"10.0.0.9"},
     {"eno1 10.0.0.3", "ib0 192.168.5.3"},
     ""},
    {"a VPN comes last",
     {"tun0 10.8.0.3/24 10000", "eth0 10.0.0.3/24 100"},
     "",
     false,
     {},
     {"eth0 10.0.0.3", "tun0 10.8.0.3"},
     ""},
    {"a VPN is better than nothing",
     {kLo4, "tailscale0 100.64.0.3/32 0"},
     "",
     false,
     {},
     {"tailscale0 100.64.0.3"},
     ""},
    {"IPv4 before IPv6",
     {"eth0 fd00::3/64 1000", "eth0 10.0.0.3/24 1000"},
     "",
     false,
     {},
     {"eth0 10.0.0.3", "eth0 fd00::3"},
     ""},
    {"IPv6 only",
     {kLo6, "eth0 fd00::3/64 1000", "eth0 fe80::3/64 1000"},
     "",
     false,
     {},
     {"eth0 fd00::3"},
     ""},
    {"link-local as the last resort",
     {kLo6, "eth0 fe80::3/64 1000"},
     "",
     false,
     {},
     {"eth0 fe80::3"},
     ""},
    {"down and without a carrier",
     {"eth0 10.0.0.3/24 1000 down", "eth1 10.0.1.3/24 1000 dark", "eth2 10.0.2.3/24 100"},
     "",
     false,
     {},
     {"eth2 10.0.2.3"},
     "not eth0 (down), eth1 (no carrier)"},
    {"one host",
     {"eth0 10.0.0.3/24 1000", kLo4},
     "",
     true,
     {},
     {"lo 127.0.0.1", "eth0 10.0.0.3"},
     "lo 127.0.0.1 (loopback)"},
    {"one host without a network", {kLo4, kLo6}, "", true, {}, {"lo 127.0.0.1", "lo ::1"}, ""},
    {"nothing but loopback",
     {kLo4, "eth0 - 0 down"},
     "",
     false,
     {},
     {},
     "lo (loopback), eth0 (down); set TUTTI_NET_INTERFACES to use one"},
    {"no interface", {}, "", false, {}, {}, "none at all"},
    {"named",
     {kLo4, "eth0 10.0.0.3/24 1000", "eth1 10.0.1.3/24 1000"},
     "eth1",
     false,
     {},
     {"eth1 10.0.1.3"},
     "by TUTTI_NET_INTERFACES=eth1; not lo eth0 (not in the rule)"},
    {"named in the order of the rule",
     {"eth0 10.0.0.3/24 1000", "ib0 10.0.1.3/24 100000"},
     "eth0,ib0",
     false,
     {},
     {"eth0 10.0.0.3", "ib0 10.0.1.3"},
     ""},
    {"a name is not a prefix",
     {"eth1 10.0.0.3/24 1000", "eth10 10.0.1.3/24 1000"},
     "eth1",
     false,
     {},
     {"eth1 10.0.0.3"},
     ""},
    {"a prefix",
     {"ib0 10.0.0.3/24 1", "eth0 10.0.2.3/24 1", "ib1 10.0.1.3/24 2"},
     "ib*",
     false,
     {},
     {"ib1 10.0.1.3", "ib0 10.0.0.3"},
     "not eth0 (not in the rule)"},
    {"excluded, with all that follows",
     {"eth0 10.0.0.3/24 9", "eth1 10.0.1.3/24 9", "ib0 10.0.2.3/24 1"},
     "^eth0,ib*",
     false,
     {},
     {"eth1 10.0.1.3"},
     "excluded by the rule"},
    {"wanted and excluded",
     {"eth0 10.0.0.3/24 1", "eth1 10.0.1.3/24 1", "ib0 10.0.2.3/24 1"},
     "eth*,^eth0",
     false,
     {},
     {"eth1 10.0.1.3"},
     ""},
    {"excluding keeps the other reasons",
     {kLo4, "docker0 172.17.0.1/16 0", "eth0 10.0.0.3/24 1"},
     "^eth1",
     false,
     {},
     {"eth0 10.0.0.3"},
     "docker0 (bridge"},
    {"a network",
     {"eth0 10.0.0.3/24 1", "eth1 192.168.7.3/24 1", "eth1 fd00::3/64 1"},
     "192.168.0.0/16",
     false,
     {},
     {"eth1 192.168.7.3"},
     ""},
    {"an IPv6 network",
     {"eth0 10.0.0.3/24 1", "eth1 fd00::3/64 1", "eth1 fd01::3/64 1"},
     "fd00::/16",
     false,
     {},
     {"eth1 fd00::3"},
     ""},
    {"docker0, because somebody wants it",
     {"docker0 172.17.0.1/16 0", "eth0 10.0.0.3/24 1"},
     "docker0",
     false,
     {},
     {"docker0 172.17.0.1"},
     ""},
    {"a name that is not there",
     {kLo4, "eth0 10.0.0.3/24 1"},
     "eht0",
     false,
     {},
     {},
     "TUTTI_NET_INTERFACES='eht0': no interface fits; there is lo eth0 (not in the rule)"},
    {"a named one that is down", {"eth0 10.0.0.3/24 1 down"}, "eth0", false, {}, {}, "eth0 (down)"},
    {"an empty word", {"eth0 10.0.0.3/24 1"}, "eth0,,eth1", false, {}, {}, "'' is no name"},
    {"a star in the middle", {"eth0 10.0.0.3/24 1"}, "e*0", false, {}, {}, "'e*0' is no name"},
    {"a network of no address", {"eth0 10.0.0.3/24 1"}, "10.0/8", false, {}, {}, "no network"},
    {"a network with too many bits",
     {"eth0 10.0.0.3/24 1"},
     "10.0.0.0/33",
     false,
     {},
     {},
     "'10.0.0.0/33' is no network"},
};

TEST_CASE("the right addresses are chosen on machines of all kinds") {
  for (const Case& one : kCases) {
    INFO(one.name);
    std::vector<InterfaceAddress> facts;
    for (const char* text : one.facts) facts.push_back(fact(text));
    std::vector<SocketAddress> peers;
    for (const char* text : one.peers) peers.push_back(ip(text));
    const auto chosen =
        choose_addresses(facts, {.rule = one.rule, .one_host = one.one_host, .peers = peers});
    REQUIRE(static_cast<bool>(chosen) == !one.chosen.empty());
    const std::string said = chosen ? chosen->why : chosen.error().what;
    INFO(said);
    CHECK(said.find(one.said) != std::string::npos);
    CHECK(said.find('\n') == std::string::npos);
    if (!chosen) continue;
    std::vector<std::string> names;
    for (const auto& offer : chosen->addresses)
      names.push_back(offer.interface + " " + offer.address.ip_text());
    CHECK(names == std::vector<std::string>(one.chosen.begin(), one.chosen.end()));
  }
}

TEST_CASE("a host with hundreds of interfaces gets a bounded list and a short sentence") {
  std::vector<InterfaceAddress> facts;
  for (int i = 0; i < 300; ++i) facts.push_back(fact("veth" + std::to_string(i) + " - 10000"));
  for (int i = 0; i < 100; ++i)
    facts.push_back(fact("eth" + std::to_string(i) + " 10.0." + std::to_string(i) + ".1/24 1000"));
  const auto chosen = choose_addresses(facts, {});
  REQUIRE(chosen);
  CHECK(chosen->addresses.size() == kMostAddresses);
  CHECK(chosen->why.find("and 296 more (no address)") != std::string::npos);
  CHECK(chosen->why.size() < 1200);
}

TEST_CASE("prefixes are compared bit by bit") {
  CHECK(same_prefix(ip("10.0.0.1"), ip("10.0.0.200"), 24));
  CHECK_FALSE(same_prefix(ip("10.0.0.1"), ip("10.0.1.1"), 24));
  CHECK(same_prefix(ip("10.0.0.1"), ip("10.0.1.1"), 23));
  CHECK(same_prefix(ip("10.0.0.128"), ip("10.0.0.191"), 26));
  CHECK_FALSE(same_prefix(ip("10.0.0.128"), ip("10.0.0.192"), 26));
  CHECK(same_prefix(ip("fd00::1"), ip("fd00::2"), 64));
  CHECK_FALSE(same_prefix(ip("fd00::1"), ip("fd00::2"), 128));
  CHECK(same_prefix(ip("1.2.3.4"), ip("200.2.3.4"), 0));
  CHECK_FALSE(same_prefix(ip("10.0.0.1"), ip("fd00::1"), 0));
}

TEST_CASE("this machine's interfaces are listed, with the speed that sysfs gives") {
  const test::ScratchDirectory root;
  const auto plain = probe_interfaces();
  REQUIRE(plain);
  REQUIRE_FALSE(plain->empty());
  for (const auto& one : *plain) {
    const auto folder = std::filesystem::path(root.path()) / "sys/class/net" / one.interface;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "speed") << (one.loopback ? "-1" : "25000") << '\n';
  }
  const auto probed = probe_interfaces(root.path());
  REQUIRE(probed);
  REQUIRE(probed->size() == plain->size());
  for (std::size_t i = 0; i < probed->size(); ++i) {
    const InterfaceAddress& one = (*probed)[i];
    INFO(describe(one));
    CHECK(one.interface == (*plain)[i].interface);
    CHECK(one.speed_mbps == (one.loopback ? 0 : 25000));
    CHECK(one.address.port() == 0);
    if (one.address.length != 0) CHECK(one.prefix_bits > 0);
    if (one.address.length != 0 && one.address.is_loopback()) CHECK(one.loopback);
  }
}

}  // namespace
}  // namespace tutti::tcp
