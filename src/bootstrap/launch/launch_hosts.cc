#include "bootstrap/launch/launch_hosts.h"

#include <fmt/format.h>
#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>

namespace tutti::bootstrap {
namespace {

constexpr std::size_t kMostNameBytes = 255;

/// A text that a shell or ssh would not take for a name is no host name.
bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == '_' || c == '@' || c == ':' || c == '%';
  };
  return !text.empty() && text.size() <= kMostNameBytes && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), fits);
}

std::optional<HostSlots> parse_host(std::string_view item) {
  std::string_view name = item, slots;
  if (item.starts_with('[')) {
    const auto close = item.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    name = item.substr(1, close - 1);
    slots = item.substr(close + 1);
    if (!slots.empty() && slots.front() != ':') return std::nullopt;
  } else if (const auto colon = item.find(':'); colon != std::string_view::npos) {
    name = item.substr(0, colon);
    slots = item.substr(colon);
  }
  HostSlots host{std::string(name)};
  if (!is_name(name)) return std::nullopt;
  if (slots.empty()) return host;
  const char* const end = item.data() + item.size();
  const auto [stop, failure] = std::from_chars(slots.data() + 1, end, host.slots);
  if (failure != std::errc{} || stop != end || host.slots < 1 || host.slots > kMostSlots)
    return std::nullopt;
  return host;
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const auto host = parse_host(item);
    if (!host || hosts.size() == kMostHosts) {
      return Error{Code::kInvalidArgument,
                   fmt::format("'{}' is no host; hosts are names or addresses, perhaps with a "
                               "number of ranks, separated by commas: node1,node2:4,[fd00::3]:4",
                               item.substr(0, 64))};
    }
    const auto known = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const HostSlots& one) { return one.host == host->host; });
    if (known == hosts.end())
      hosts.push_back(*host);
    else
      known->slots = std::min(known->slots + host->slots, kMostSlots);
  }
  return hosts;
}

Result<std::vector<HostSlots>> share_out(const std::vector<HostSlots>& hosts, int rank_count) {
  const int slots = std::accumulate(hosts.begin(), hosts.end(), 0,
                                    [](int sum, const HostSlots& one) { return sum + one.slots; });
  if (rank_count > slots) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} ranks, but the hosts take {}; say how many each takes: {}:{}",
                             rank_count, slots, hosts[0].host, rank_count)};
  }
  int left = rank_count == 0 ? slots : rank_count;
  std::vector<HostSlots> shares;
  for (const HostSlots& one : hosts) {
    if (left == 0) break;
    shares.push_back({one.host, std::min(one.slots, left)});
    left -= shares.back().slots;
  }
  return shares;
}

}  // namespace tutti::bootstrap
