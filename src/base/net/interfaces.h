// File: base/net/interfaces.h: at which addresses a rank can be reached by others.
//
// Two halves: `probe_interfaces` collects facts from the system, `choose_addresses` is a pure
// function from facts to addresses and to a sentence that says why these and not others. A host
// name is never asked: on many systems it means 127.0.1.1.
//
// The choices, in this order:
//   1. loopback, if all ranks are on one host (nothing is nearer), and never else;
//   2. addresses of ordinary interfaces: those in a network of the peers first, then fast ones
//      first, IPv4 before IPv6;
//   3. the same of VPN tunnels;
//   4. link-local addresses, only if there is nothing of the above.
// Never: interfaces that are down or without a carrier, and bridges of containers and hypervisors.
// A rule (TUTTI_NET_INTERFACES) overrides all of this but "down".
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/socket_address.h"
#include "tutti/result.h"

namespace tutti::tcp {

/// One address of one interface. An interface without any has one entry with an address of length
/// 0.
struct InterfaceAddress {
  std::string interface;
  SocketAddress address;  // Its port is 0.
  int prefix_bits = 0;    // The prefix of the address's network.
  int speed_mbps = 0;     // 0: the driver does not say.
  bool up = true;         // Switched on.
  bool running = true;    // Has a carrier.
  bool loopback = false;
};

/// All addresses of this network namespace, in the system's order. `root` stands before
/// /sys/class/net, for tests.
Result<std::vector<InterfaceAddress>> probe_interfaces(const std::string& root = "");

struct AddressPreference {
  /// Which interfaces to take, best first, by commas: names, prefixes with a star, networks
  /// ("eth0,ib*,10.0.0.0/8"). From a ^ on they are excluded ("^docker0,wlan*"). Empty: by the order
  /// above.
  std::string_view rule{};
  bool one_host = false;  // All ranks have the same Peer::host.
  /// Addresses of peers, as far as they are known.
  std::span<const SocketAddress> peers{};
};

struct ChosenAddresses {
  std::vector<InterfaceAddress> addresses;  // Best first; at least one, at most kMostAddresses.
  std::string why;                          // One line, for people.
};
inline constexpr std::size_t kMostAddresses = 16;

/// kInvalidArgument: the rule can't be read, or nothing fits it; kUnsupported: without a rule there
/// is nothing to choose. Both name what there is. Pure.
Result<ChosenAddresses> choose_addresses(std::span<const InterfaceAddress> facts,
                                         const AddressPreference& preference);

/// "eth0 10.0.0.3 (100 Gbit/s)".
std::string describe(const InterfaceAddress& one);

}  // namespace tutti::tcp
