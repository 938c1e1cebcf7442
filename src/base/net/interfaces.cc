#include "base/net/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

namespace tutti::tcp {
namespace {

constexpr std::size_t kMostRuleBytes = 1024;
// The assumed speed of an interface that does not say it (virtio, wireless).
constexpr int kAssumedMbps = 1000;
// Names for one reason in the sentence: a container host has hundreds of interfaces.
constexpr std::size_t kMostNames = 4;

int speed_of(const std::string& root, const std::string& interface) {
  int mbps = 0;
  std::ifstream(root + "/sys/class/net/" + interface + "/speed") >> mbps;
  return std::max(mbps, 0);  // -1, or unreadable, where there is no carrier or no such thing.
}

int prefix_bits_of(const sockaddr* mask) {
  int bits = 0;
  const SocketAddress address = SocketAddress::of(mask);
  for (const std::byte byte : address.ip()) bits += std::popcount(std::to_integer<unsigned>(byte));
  return bits;
}

bool is_tunnel(std::string_view name) {
  constexpr std::array<std::string_view, 8> kPrefixes{"tun",  "wg",  "tailscale", "ppp",
                                                      "utun", "gre", "sit",       "ipip"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

/// One word of a rule.
struct Pattern {
  std::string name;       // An interface, or a prefix of its name.
  bool starred = false;   // It is a prefix.
  SocketAddress network;  // Length 0: this is a name.
  int bits = 0;

  bool fits(const InterfaceAddress& one) const {
    if (network.length != 0)
      return one.address.length != 0 && same_prefix(network, one.address, bits);
    return starred ? one.interface.starts_with(name) : one.interface == name;
  }
};

struct Rule {
  std::vector<Pattern> wanted, excluded;
};

Error bad_rule(std::string_view rule, const std::string& what) {
  return {Code::kInvalidArgument,
          fmt::format("TUTTI_NET_INTERFACES='{:.128}': {}; it takes names, prefixes with * and "
                      "networks, separated by commas; those after a ^ are excluded: "
                      "eth0,ib*,10.0.0.0/8,^eth3",
                      rule, what)};
}

std::optional<Pattern> parse_network(std::string_view word) {
  const std::size_t slash = word.find('/');
  const std::string ip(word.substr(0, slash));
  const std::string_view digits = word.substr(slash + 1);
  Pattern pattern;
  in_addr ipv4{};
  in6_addr ipv6{};
  int most = 0;
  if (inet_pton(AF_INET, ip.c_str(), &ipv4) == 1) {
    pattern.network = ipv4_address(ipv4, 0);
    most = 32;
  } else if (inet_pton(AF_INET6, ip.c_str(), &ipv6) == 1) {
    pattern.network = ipv6_address(ipv6, 0);
    most = 128;
  }
  const auto [end, failure] =
      std::from_chars(digits.data(), digits.data() + digits.size(), pattern.bits);
  const bool whole = failure == std::errc{} && end == digits.data() + digits.size();
  if (most == 0 || !whole || pattern.bits < 0 || pattern.bits > most) return std::nullopt;
  return pattern;
}

Result<Rule> parse_rule(std::string_view text) {
  Rule rule;
  if (text.size() > kMostRuleBytes) return bad_rule(text, "it is too long");
  bool exclude = false;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view word = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (word.starts_with('^')) {
      exclude = true;
      word.remove_prefix(1);
    }
    Pattern pattern;
    if (word.find('/') != std::string_view::npos) {
      auto network = parse_network(word);
      if (!network) return bad_rule(text, fmt::format("'{:.64}' is no network", word));
      pattern = *std::move(network);
    } else {
      pattern.starred = word.ends_with('*');
      pattern.name = word.substr(0, word.size() - (pattern.starred ? 1 : 0));
      const bool empty = pattern.name.empty() && !pattern.starred;
      if (empty || pattern.name.find_first_of("*^ ") != std::string::npos)
        return bad_rule(text, fmt::format("'{:.64}' is no name of an interface", word));
    }
    (exclude ? rule.excluded : rule.wanted).push_back(std::move(pattern));
  }
  return rule;
}

/// Why an address can't be taken, or empty. An address that only ranks low is not refused here.
std::string refuse(const InterfaceAddress& one, const Rule& rule, bool one_host) {
  const auto fits = [&one](const Pattern& pattern) { return pattern.fits(one); };
  if (!one.up) return "down";
  if (!one.running) return "no carrier";
  if (one.address.length == 0) return "no address";
  if (std::any_of(rule.excluded.begin(), rule.excluded.end(), fits)) return "excluded by the rule";
  if (!rule.wanted.empty()) {
    const bool wanted = std::any_of(rule.wanted.begin(), rule.wanted.end(), fits);
    return wanted ? "" : "not in the rule";
  }
  // By address too: 127.0.1.1 may have been put on any interface.
  if (one.loopback || one.address.is_loopback()) return one_host ? "" : "loopback";
  if (is_virtual_bridge(one.interface)) return "bridge of containers or virtual machines";
  return "";
}

/// Smaller is better.
auto order_of(const InterfaceAddress& one, const Rule& rule, const AddressPreference& preference) {
  const auto fits = [&one](const Pattern& pattern) { return pattern.fits(one); };
  const auto named = std::find_if(rule.wanted.begin(), rule.wanted.end(), fits);
  const bool loopback = one.loopback || one.address.is_loopback();
  const int tier = one.address.is_link_local() ? 3
                   : is_tunnel(one.interface)  ? 2
                   : loopback                  ? 0
                                               : 1;
  const bool near = std::ranges::any_of(preference.peers, [&one](const SocketAddress& peer) {
    return same_prefix(one.address, peer, one.prefix_bits);
  });
  const int speed = one.speed_mbps > 0 ? one.speed_mbps : kAssumedMbps;
  return std::tuple(named - rule.wanted.begin(), tier, !near, -speed,
                    one.address.family() == AF_INET ? 0 : 1);
}

/// "lo (loopback), docker0 and br-1 (bridge ...)" of (reason, name) pairs.
std::string describe_refused(const std::vector<std::pair<std::string, std::string>>& refused) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const auto& [reason, name] : refused) {
    auto found = std::find_if(by_reason.begin(), by_reason.end(),
                              [&r = reason](const auto& entry) { return entry.first == r; });
    if (found == by_reason.end()) found = by_reason.insert(found, {reason, {}});
    auto& names = found->second;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string text;
  for (const auto& [reason, names] : by_reason) {
    const std::size_t shown = std::min(names.size(), kMostNames);
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        fmt::join(names.begin(), names.begin() + static_cast<long>(shown), " "));
    if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
    text += " (" + reason + ")";
  }
  return text;
}

}  // namespace

std::string describe(const InterfaceAddress& one) {
  const std::string ip = one.address.length == 0 ? "" : " " + one.address.ip_text();
  if (one.loopback) return one.interface + ip + " (loopback)";
  if (one.speed_mbps == 0) return one.interface + ip + " (speed unknown)";
  return fmt::format("{}{} ({:g} Gbit/s)", one.interface, ip, one.speed_mbps / 1000.0);
}

Result<std::vector<InterfaceAddress>> probe_interfaces(const std::string& root) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) {
    return Error{Code::kSystem,
                 "tcp: listing interfaces: " + std::generic_category().message(errno)};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, freeifaddrs);
  std::vector<InterfaceAddress> facts;
  std::map<std::string, int> speeds;
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    InterfaceAddress fact;
    fact.interface = one->ifa_name;
    fact.up = (one->ifa_flags & IFF_UP) != 0;
    fact.running = (one->ifa_flags & IFF_RUNNING) != 0;
    fact.loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    const auto [speed, is_new] = speeds.try_emplace(fact.interface, 0);
    if (is_new) speed->second = fact.loopback ? 0 : speed_of(root, fact.interface);
    fact.speed_mbps = speed->second;
    fact.address = SocketAddress::of(one->ifa_addr);
    if (fact.address.length != 0) fact.prefix_bits = prefix_bits_of(one->ifa_netmask);
    facts.push_back(std::move(fact));
  }
  // An interface without an address is listed once, as the link layer's entry that all have.
  std::map<std::string, bool> addressed;
  for (const auto& fact : facts) addressed[fact.interface] |= fact.address.length != 0;
  std::erase_if(facts, [&](const InterfaceAddress& fact) {
    return fact.address.length == 0 && addressed[fact.interface];
  });
  return facts;
}

Result<ChosenAddresses> choose_addresses(std::span<const InterfaceAddress> facts,
                                         const AddressPreference& preference) {
  TUTTI_TRY(const Rule rule, parse_rule(preference.rule));
  ChosenAddresses chosen;
  std::vector<std::pair<std::string, std::string>> refused;
  for (const InterfaceAddress& one : facts) {
    const std::string reason = refuse(one, rule, preference.one_host);
    if (reason.empty())
      chosen.addresses.push_back(one);
    else
      refused.emplace_back(reason, one.interface);
  }
  if (chosen.addresses.empty()) {
    const std::string there = facts.empty() ? "none at all" : describe_refused(refused);
    if (!preference.rule.empty())
      return bad_rule(preference.rule, "no interface fits; there is " + there);
    return Error{Code::kUnsupported,
                 "tcp: no interface has an address that another host could reach; there is " +
                     there + "; set TUTTI_NET_INTERFACES to use one of them"};
  }
  std::stable_sort(chosen.addresses.begin(), chosen.addresses.end(),
                   [&](const InterfaceAddress& a, const InterfaceAddress& b) {
                     return order_of(a, rule, preference) < order_of(b, rule, preference);
                   });
  // Link-local ones are the last resort, unless somebody asked for them.
  if (rule.wanted.empty() && !chosen.addresses.front().address.is_link_local()) {
    std::erase_if(chosen.addresses, [&](const InterfaceAddress& one) {
      if (!one.address.is_link_local()) return false;
      refused.emplace_back("link-local address", one.interface);
      return true;
    });
  }
  if (chosen.addresses.size() > kMostAddresses) chosen.addresses.resize(kMostAddresses);
  for (const InterfaceAddress& one : chosen.addresses)
    chosen.why += (chosen.why.empty() ? "" : ", ") + describe(one);
  if (!preference.rule.empty())
    chosen.why += fmt::format(", by TUTTI_NET_INTERFACES={}", preference.rule);
  if (!refused.empty()) chosen.why += "; not " + describe_refused(refused);
  return chosen;
}

}  // namespace tutti::tcp
