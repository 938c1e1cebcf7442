// File: tutti/device_handle.h: the plain structure by which a program's own kernels reach the
// memory of all ranks. DeviceCommunicator::device_handle makes it, kernels get it by value, and
// tutti/device.cuh has the functions for it. The guide is docs/device-api.md.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/detail/device_common.h"

namespace tutti {

/// A window: as many bytes of registered memory on each rank; and channels of signals between the
/// ranks. Valid as long as the memory is registered.
struct DeviceHandle {
  std::uint32_t rank = 0;  // This one.
  std::uint32_t ranks = 0;
  std::uint32_t channels = 0;
  std::uint64_t bytes = 0;       // The window has so many.
  std::uint64_t timeout_ns = 0;  // How long a wait lasts, at most.
  cuda::Report* report = nullptr;
  // By rank, as this rank's device sees them.
  std::byte* windows[cuda::kMostDeviceRanks] = {};
  cuda::SignalLine* signals[cuda::kMostDeviceRanks] = {};  // By channel * ranks + peer.
  std::byte* boards[cuda::kMostDeviceRanks] = {};

  /// Whether this part lies in the window.
  constexpr bool contains(std::uint64_t offset, std::uint64_t part_bytes) const {
    return offset <= bytes && part_bytes <= bytes - offset;
  }
};

}  // namespace tutti
