// File: comm/nic_paths.h: how near network devices are to ranks of host memory, which use those
// near the NUMA nodes of their CPUs.
#pragma once
#include <span>

#include "transport/transport.h"

namespace tutti {

/// For Opening::nic_paths. As long as the peers live.
NicPaths nic_paths_of(std::span<const Peer> peers);

}  // namespace tutti
