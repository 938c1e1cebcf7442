// File: exec/adapt/eager_limits.h: up to which size calls are eager, by what the buffers of the
// last calls allowed.
//
// Where all ranks can map the buffers, a plan saves the eager path's copy and wins from a smaller
// size on. The lines of a call tell all ranks alike whether its buffers could be mapped, and the
// next call of a size between the two limits follows that.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tutti/types.h"

namespace tutti::exec {

class EagerLimits {
 public:
  using Bytes = std::array<std::size_t, kCollectiveCount>;

  /// `plain`: the limits; `mapped`: those for ranks that lately used buffers which all can map.
  EagerLimits(bool adapts, const Bytes& plain, const Bytes& mapped)
      : adapts_(adapts), plain_(plain), mapped_(mapped) {}

  std::size_t plain(Collective collective) const {
    return plain_[static_cast<std::size_t>(collective)];
  }
  /// Whether a call of that size is eager whatever its buffers are.
  bool always_allow(Collective collective, std::size_t bytes) const {
    return bytes <= mapped_[static_cast<std::size_t>(collective)];
  }
  /// Whether a call is eager, which comes after `number`.
  bool allow(Collective collective, std::size_t bytes, std::uint64_t number) const {
    if (adapts_ && !always_allow(collective, bytes)) {
      // relaxed: this thread's own.
      if (lately_mapped_.load(std::memory_order_relaxed)) return false;
      if (has_root(collective) && number % kRootedTrial == 0) return false;
    }
    return bytes <= plain(collective);
  }
  /// Whether a call's buffers could be mapped; alike on all ranks.
  void note(bool mapped) {
    // relaxed: others only show it.
    lately_mapped_.store(adapts_ && mapped, std::memory_order_relaxed);
  }
  /// Whether the last calls had buffers that all ranks can map. Any thread.
  bool lately_mapped() const { return lately_mapped_.load(std::memory_order_relaxed); }

 private:
  /// One rooted call in so many between the limits goes by a plan: its lines reach all ranks, those
  /// of an eager one do not.
  static constexpr std::uint64_t kRootedTrial = 64;

  bool adapts_;
  Bytes plain_, mapped_;
  std::atomic<bool> lately_mapped_{false};
};

}  // namespace tutti::exec
