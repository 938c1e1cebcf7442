// File: base/net/evict.h: which unauthenticated connection is closed when there are too many.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti {

/// A connection from a peer that has not proved that it belongs to the job.
struct Unproven {
  std::uint64_t id = 0;
  /// Its first message was valid, which takes the number of the job. So a flood of silent
  /// connections does not push out a rank that is about to prove itself.
  bool spoke = false;
  std::string_view source;  // Its address, without the port.
};

/// The oldest connection of the source that has most connections. Only connections that have sent
/// nothing valid count, if there are any. `oldest_first` must not be empty.
inline std::uint64_t whom_to_evict(std::span<const Unproven> oldest_first) {
  const bool any_silent = !std::ranges::all_of(oldest_first, &Unproven::spoke);
  std::uint64_t id = oldest_first.front().id;
  std::size_t most = 0;
  for (std::size_t i = 0; i < oldest_first.size(); ++i) {
    const Unproven& one = oldest_first[i];
    if (any_silent && one.spoke) continue;
    std::size_t alike = 0;  // Connections of this source from here on: all, if this is the oldest.
    for (const Unproven& other : oldest_first.subspan(i))
      alike += other.source == one.source && !(any_silent && other.spoke) ? 1 : 0;
    if (alike > most) {
      most = alike;
      id = one.id;
    }
  }
  return id;
}

}  // namespace tutti
