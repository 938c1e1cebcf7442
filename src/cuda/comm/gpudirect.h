// File: cuda/comm/gpudirect.h: whether slots between devices of different hosts lie in the devices'
// memory (cuda/mesh/gpudirect_memory.h): on all ranks or on none, as TUTTI_GPUDIRECT says and ranks
// can.
#pragma once
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/links.h"
#include "transport/transport.h"

namespace tutti {

/// Sets opening.apart and the cards to use, if so, and the state's memory and words for it. Where
/// TUTTI_GPUDIRECT=on can't be had it is an error that names the rank. Collective.
Status choose_gpudirect(DeviceRank& self, const Transport& transport, Opening& opening);

/// How near cards are to the devices of ranks, by the files of this machine and, if the setting
/// names one that is of it, a file of NCCL. As long as both live.
NicPaths nic_paths_of(const Settings& settings, const std::vector<DeviceInfo>& all);

}  // namespace tutti
