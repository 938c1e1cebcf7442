// File: cuda/mesh/program_kernels.h: what a program's own kernels get of a mesh
// (tutti/device_handle.h).
#pragma once
#include <cstddef>
#include <vector>

#include "cuda/mesh/rings.h"
#include "tutti/device_handle.h"

namespace tutti::exec {

/// Windows of `bytes` and the memory of signals, by rank, as this rank's device sees them. All
/// ranks reach each other's memory.
inline DeviceHandle device_handle_of(const CudaRings& rings, int rank, std::size_t bytes,
                                     const std::vector<std::byte*>& windows, std::uint32_t channels,
                                     const std::vector<std::byte*>& signals) {
  const cuda::Arguments known = rings.arguments(rank);
  DeviceHandle handle;
  handle.rank = known.rank;
  handle.ranks = known.ranks;
  handle.channels = channels;
  handle.bytes = bytes;
  handle.timeout_ns = known.timeout_ns;
  handle.report = known.report;
  for (std::size_t peer = 0; peer < known.ranks; ++peer) {
    handle.windows[peer] = windows[peer];
    handle.signals[peer] = reinterpret_cast<cuda::SignalLine*>(signals[peer]);
    handle.boards[peer] = known.boards[peer];
  }
  return handle;
}
/// What the signals of so many channels take in each rank's memory.
constexpr std::size_t signal_bytes(std::size_t channels, std::size_t ranks) {
  return channels * ranks * sizeof(cuda::SignalLine);
}

}  // namespace tutti::exec
