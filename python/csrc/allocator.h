// File: python/csrc/allocator.h: memory for tensors that the ranks of a host can map.
//
// Model: blocks come from tutti::mem_alloc (a memfd each), and freed ones are kept for the next
// tensor of about that size, because making, zeroing and mapping one costs more than using it. What
// is kept is bounded. Also the temporary buffers of list-shaped collectives come from here.
#pragma once
#include <cstddef>

#include <ATen/core/Tensor.h>

namespace tutti::python {

/// A contiguous, uninitialised CPU tensor in mappable memory; in plain memory if there is none, or
/// if it is small.
at::Tensor make_mappable(at::IntArrayRef sizes, at::ScalarType type);

/// The same where `like` is: on a device, torch's own.
at::Tensor make_beside(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type);

/// From now on torch's CPU tensors of at least `from_bytes` are mappable; smaller ones stay where
/// they were. Tensors that exist stay as they are. Any thread; for good.
void enable_shared_allocator(std::size_t from_bytes);
bool shared_allocator_enabled();

/// Bytes that are in use, and that are kept for later.
struct PoolUse {
  std::size_t used = 0, kept = 0;
};
PoolUse pool_use();

}  // namespace tutti::python
