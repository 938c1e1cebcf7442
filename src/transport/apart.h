// File: transport/apart.h: slots apart from a region: in other memory of their rank, a device's as
// a rule, where the network's cards read and write them.
//
// Only slots of channels between ranks of different hosts are apart, of both directions; their
// counters stay in the region. The host touches none of that memory: it may not be able to, or see
// old bytes there. So it is given to the network as it is, however short, and what comes lies where
// it belongs, or is an error.
//
// Layout. Of each rank of another host, in order: the slots of all channels to it, by lane, then
// those of all channels from it. So what a rank sends to a peer lies in one range, and lands in one
// range of the peer's, at the same offset.
#pragma once
#include <cstddef>
#include <functional>
#include <span>

#include "tutti/result.h"

namespace tutti {

struct RegionConfig;

struct Apart {
  std::span<std::byte> memory;  // Of apart_bytes() or more; empty: all slots are in the region.
  std::span<const int> hosts;   // By rank: of which host it is. Alike on all ranks.
  int dma_buf = -1;             // A descriptor of the memory; -1: it is known by address alone.
  /// Makes what the network has written there seen by who reads it; null: it is seen at once.
  std::function<Status()> flush = {};

  bool there() const { return !memory.empty(); }
};

/// Where in a rank's memory the ranges for a peer begin, and how long each is; 0: it has none.
struct ApartRanges {
  std::size_t out = 0, in = 0, bytes = 0;
};
ApartRanges apart_ranges(const RegionConfig& config, std::span<const int> hosts, int rank,
                         int peer);
/// What a rank needs for all its peers.
std::size_t apart_bytes(const RegionConfig& config, std::span<const int> hosts, int rank);

}  // namespace tutti
