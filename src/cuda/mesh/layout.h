// File: cuda/mesh/layout.h: the options of a mesh, and where things are in a rank's memory.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/interpreter.h"
#include "transport/region.h"

namespace tutti::exec {

struct CudaMeshOptions {
  std::vector<int> devices;  // By rank.
  /// By rank, where one rank is here: which ranks' rings with it are in the host's memory. Empty:
  /// none.
  std::vector<bool> staged;
  /// By rank, where one rank is here: which ranks are on another host. Rings with them are those of
  /// `network`, which has the mesh's lanes and slots and is carried (network.h). Empty: none.
  std::vector<bool> remote;
  Region network;
  std::uint32_t lanes = 1;  // The most that a plan may have.
  std::uint32_t slot_count = 8;
  std::size_t slot_bytes = std::size_t{128} << 10;
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
  /// For a rank's contribution to a one-shot all-reduce, in each lane: half of it is data.
  std::size_t area_bytes = std::size_t{8} << 10;
  unsigned threads = 512;                                       // In a block: whole warps.
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // How long a kernel waits.
};

/// Some of a mesh's ranks, a bit for each.
using CudaRanks = std::uint64_t;
static_assert(cuda::kMostDeviceRanks <= 64);

/// Bytes between counters in a rank's memory, and what everything there begins at.
inline constexpr std::size_t kCudaMeshLine = 128;
constexpr std::size_t whole_lines(std::size_t bytes) {
  return (bytes + kCudaMeshLine - 1) / kCudaMeshLine * kCudaMeshLine;
}

/// Where things are in a rank's memory, in bytes; the same for all ranks, but that slots come last
/// and are of some ranks only.
struct CudaMeshLayout {
  explicit CudaMeshLayout(const CudaMeshOptions& options);
  /// By lane and peer, of what has a place for each.
  std::size_t index(std::size_t lane, std::size_t peer) const { return lane * ranks + peer; }
  /// Where the slots of a ring are, in memory that has those of the ranks `with`.
  std::size_t slots_at(CudaRanks with, std::size_t lane, std::size_t peer) const;

  std::size_t ranks, lanes, ring_bytes;
  std::size_t heads, tails, signals, inboxes, outboxes, signal_ends, notes, areas, states, counts,
      board, slots;
};

}  // namespace tutti::exec
