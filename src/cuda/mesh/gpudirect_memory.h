// File: cuda/mesh/gpudirect_memory.h: a device's memory that network cards read and write: slots of
// rings to other hosts (transport/gpudirect_slots.h). That is GPUDirect RDMA.
//
// It is memory of the runtime, shared with no peer. Cards get at it by a dma-buf, or by its address
// where the kernel has a module for that (nvidia_peermem). Both take whole pages: of the device's
// 64 KiB, which are whole ones of any host too. CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, which NVIDIA asks
// for where such memory is copied, is not set: nothing but kernels and cards touches it once it is
// made.
//
// Order. A card's write into the device and its completion, which goes to the host, take different
// ways, and what a running kernel sees of the write is up to the device. Either the device says
// that it sees all that came before a completion, or the host has to flush: before it tells a
// kernel that a slot is full. The kernel's acquire of the ring's head, at system scope, then keeps
// its block from what its first-level cache may have of the slot. In the other direction its
// release of the head, at system scope too, covers what the block wrote, for cards as for the host.
#pragma once
#include <cstddef>
#include <span>

#include "base/fd.h"
#include "cuda/driver/memory.h"
#include "transport/gpudirect_slots.h"

namespace tutti::exec {

class GpuDirectMemory {
 public:
  GpuDirectMemory() = default;
  /// Zeroed. kUnsupported: why cards can't get at this device's memory, as far as it knows.
  static Result<GpuDirectMemory> allocate(int device, std::size_t bytes);
  static Status check(int device);

  /// As a transport takes it, which outlives neither this nor the list of hosts.
  GpuDirectSlots description(std::span<const int> hosts) const;
  /// The descriptor is not needed any more.
  void close() { dma_buf_.reset(); }
  /// The device memory that it takes, including the part that lets it begin at a page.
  std::size_t bytes() const { return memory_.size(); }

 private:
  CudaMemory memory_;
  std::span<std::byte> pages_;
  Fd dma_buf_;
  bool needs_flush_ = false;
};

}  // namespace tutti::exec
