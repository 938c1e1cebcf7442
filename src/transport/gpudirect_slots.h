// File: transport/gpudirect_slots.h: slots that lie outside the region, in other memory of their
// rank: usually a device's, where network cards read and write them.
//
// Only slots of channels between hosts are there, in both directions; their counters stay in the
// region. The host touches none of that memory: it may not be able to, or it may see old bytes. So
// the network gets payloads as they are, however short, and a payload that arrives lies in its
// place, or is an error.
//
// Layout, for each rank of another host in order: the slots of all channels to it, by lane, then
// those of all channels from it. So all slots that a rank sends to a peer lie in one range, and
// arrive in one range of the peer's, at the same offset.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tutti/result.h"

namespace tutti {

struct RegionConfig;

struct GpuDirectSlots {
  std::span<std::byte> memory;  // At least gpudirect_bytes(); empty: all slots are in the region.
  std::span<const int> hosts;   // By rank: its host. Alike on all ranks.
  int dma_buf = -1;             // A descriptor of the memory; -1: it is known by address alone.
  /// Makes bytes that the network has written visible to their readers; null: they are at once.
  std::function<Status()> flush = {};

  bool there() const { return !memory.empty(); }
};

/// Where in a rank's memory the ranges for a peer begin, and how long each is; 0: it has none.
struct GpuDirectRanges {
  std::size_t out = 0, in = 0, bytes = 0;
};
GpuDirectRanges gpudirect_ranges(const RegionConfig& config, std::span<const int> hosts, int rank,
                                 int peer);
/// The bytes that a rank needs for all its peers.
std::size_t gpudirect_bytes(const RegionConfig& config, std::span<const int> hosts, int rank);

}  // namespace tutti
