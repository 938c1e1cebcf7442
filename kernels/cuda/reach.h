// File: kernels/cuda/reach.h: what the host and the kernel that tries peers' memory both know.
//
// A driver may say that a device can access another one's memory, and writes are lost all the same:
// PCI Express bridges that check addresses (ACS, IOMMU) and virtual machines do so. So each rank's
// kernel writes a pattern to a line of each peer's memory when they join, and each rank then looks
// which patterns have come (cuda/comm/reach.cc).
#pragma once
#include <cstdint>

#include "kernels/cuda/interpreter.h"

namespace tutti::cuda {

struct ReachArguments {
  std::uint64_t* lines[kMostDeviceRanks] = {};  // By rank, in its memory; null: not tried.
  std::uint64_t pattern = 0;
};

/// Its grid is one block of kMostDeviceRanks threads.
const void* reach_kernel();

}  // namespace tutti::cuda
