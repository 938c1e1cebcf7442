#include "transport/gpudirect_slots.h"

#include <algorithm>

#include "transport/region.h"

namespace tutti {
namespace {

std::size_t range_bytes(const RegionConfig& config) {
  return std::size_t{config.lanes} * config.slot_count * config.slot_bytes;
}

/// How many of the first `count` ranks are not on `rank`'s host.
std::size_t remote_among(std::span<const int> hosts, std::size_t count, int rank) {
  const int own = hosts[static_cast<std::size_t>(rank)];
  return static_cast<std::size_t>(
      std::ranges::count_if(hosts.first(count), [own](int host) { return host != own; }));
}

}  // namespace

GpuDirectRanges gpudirect_ranges(const RegionConfig& config, std::span<const int> hosts, int rank,
                                 int peer) {
  const auto at = static_cast<std::size_t>(peer);
  if (hosts[at] == hosts[static_cast<std::size_t>(rank)]) return {};
  const std::size_t bytes = range_bytes(config), first = 2 * bytes * remote_among(hosts, at, rank);
  return {first, first + bytes, bytes};
}

std::size_t gpudirect_bytes(const RegionConfig& config, std::span<const int> hosts, int rank) {
  return 2 * range_bytes(config) * remote_among(hosts, hosts.size(), rank);
}

}  // namespace tutti
