// File: cuda/comm/topology_dump.h: the topology of a rank's host as a file of NCCL, for people and
// for NCCL's own tools.
#pragma once
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/links.h"

namespace tutti {

/// Writes the file of the setting `topology_dump`, if this is the rank that is to. GPUs that ranks
/// have get their rank, as in NCCL's dumps. If it can't be written, a warning says so.
void dump_topology(const DeviceRank& self, const std::vector<DeviceInfo>& all);

}  // namespace tutti
