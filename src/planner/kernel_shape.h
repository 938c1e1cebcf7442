// File: planner/kernel_shape.h: the shape of this library's kernels: how many blocks and lanes, how
// long slots are, and up to which sizes each kernel is used. The figures and the evidence for them
// are in kernel_shape.def; `tutti topo predict --shape` prints them.
//
// Kernels may not include this, so some have constants of their own. cuda/comm/create.cc and
// simt/body_test.cc check that these are the same.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/settings.h"

namespace tutti::planner {

/// It has more than 15 fields: one for each figure.
struct KernelShape {
#define TUTTI_KERNEL_FIGURE(type, name, value, unit, kind, what, evidence) type name = value;
#include "planner/kernel_shape.def"
#undef TUTTI_KERNEL_FIGURE
  bool operator==(const KernelShape&) const = default;
};

inline constexpr KernelShape kKernelShape;

/// What a communicator of devices has.
struct CommunicatorShape {
  std::uint32_t lanes = 0;
  std::uint32_t slot_count = 0;
  std::size_t slot_bytes = 0;
  std::uint32_t queues = 0;  // For messages, in a launch.
  /// Blocks that messages both ways may take, if more than lanes.
  std::uint32_t message_blocks = 0;
  bool operator==(const CommunicatorShape&) const = default;
};

/// Slots are of so many bytes, or a multiple of it.
inline constexpr std::size_t kSlotGrain = 1024;

/// The devices that it is for: multiprocessors of the smallest one, and the ranks on the one that
/// has the most.
struct CommunicatorDevices {
  int multiprocessors = 0;
  std::size_t ranks = 1;
  std::size_t most_on_one = 1;
};

/// The shape that a communicator gets, as far as settings don't say: alike on all ranks.
CommunicatorShape communicator_shape(const CommunicatorDevices& devices, const Settings& settings,
                                     const KernelShape& figures = kKernelShape);

}  // namespace tutti::planner
