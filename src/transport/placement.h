// File: transport/placement.h: which memory is near which rank.
#pragma once
#include <cstddef>

namespace tutti {

/// NUMA nodes with memory on this machine; 1 where it can't be told.
int numa_nodes();

/// Binds pages that nobody has touched yet to the calling thread's NUMA node. Best effort: without
/// hwloc, or on a machine with one node, the first touch decides, which comes to the same for a
/// pinned rank.
void place_near_this_thread(void* data, std::size_t bytes);

}  // namespace tutti
