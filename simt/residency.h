// File: simt/residency.h: how many blocks a multiprocessor runs at a time, and where the blocks of
// a device are.
//
// A block is resident where its threads, registers and shared memory have room, from its start to
// its end: nothing is preempted. The others of its kernel wait, in the order of their numbers. So a
// kernel whose blocks wait for each other has to fit as a whole (CUDA Programming Guide, "Compute
// Capabilities": technical specifications of a multiprocessor).
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "simt/engine.h"

namespace tutti::simt {

/// What a multiprocessor of that compute capability (90: 9.0) has.
Resources resources_of_multiprocessor(int sm);
/// What a block of the kernel takes there.
Resources resources_of_block(const Kernel& kernel, unsigned threads, std::size_t shared_bytes,
                             int sm);
/// How many such blocks fit; 0: none does.
int blocks_that_fit(const Resources& has, const Resources& block);

/// A device's multiprocessors. Any thread.
class Multiprocessors {
 public:
  /// Takes room for a block where fewest are; returns where that is. Waits until there is some.
  std::size_t enter(const Launch& launch, unsigned number);
  void leave(std::size_t where, const Resources& block);

 private:
  /// With the mutex held. taken_.size(): there is no room.
  std::size_t find(const Launch& launch);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Resources> taken_;  // Guarded by mutex_.
};

}  // namespace tutti::simt
