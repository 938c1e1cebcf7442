// File: cuda/comm/links.h: what ranks say of their devices, and how these reach each other.
//
// Each rank asks about its own device; then all know all, and so have the same machine to choose
// plans from (cuda/comm/select.h).
#pragma once
#include <cstdint>
#include <vector>

#include "cuda/comm/device_rank.h"
#include "cuda/comm/exchange_status.h"
#include "cuda/driver/share.h"
#include "transport/transport.h"
#include "tutti/result.h"

namespace tutti {

/// A rank's device.
struct DeviceInfo {
  ExchangedStatus status;
  Peer peer;
  char bus[20] = {};      // The same in every process,
  CUuuid uuid = {};       // and another one for each MIG instance of a GPU.
  exec::CudaName sample;  // A little of its memory, for other processes to try.
  std::int32_t multiprocessors = 0;
  std::int32_t capability = 0;  // As 90.
  std::uint64_t token = 0;      // Rank 0's names the communicator.
  std::uint64_t settings = 0;
};

/// Whether two ranks of one host have the same device.
bool same_device(const DeviceInfo& one, const DeviceInfo& other);

/// How all reach each other; the worse of both ways. Sets the machine's links, what is staged, and
/// refusals; hosts have to be known. Collective.
Status learn_links(DeviceRank& self, const std::vector<DeviceInfo>& all);

}  // namespace tutti
