// File: cuda/comm/multicast.h: multicast memory of a communicator's ranks: its staging memory, and
// what of registered memory is such.
//
// There is some where all ranks have devices of their own behind the same NVSwitches, which can
// multicast, and where the system lets ranks share an object. Whatever is in the way, no rank has
// it then, and the communicator goes on without.
#pragma once
#include <string>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/driver/multicast.h"
#include "cuda/driver/share.h"
#include "cuda/mesh/mesh.h"
#include "tutti/result.h"

namespace tutti {

struct DeviceRank;
class RegisteredMemory;

struct MulticastMemory {
  std::string why_not = "not tried";  // On all ranks, or on none, this is empty: there is some.
  exec::CudaMemory memory;            // For staging.
  exec::CudaMulticastStaging staging;
};

/// Makes the staging memory of `registered`. An error is no reason to give up, and is in `why_not`.
/// Collective.
void make_multicast(DeviceRank& self, RegisteredMemory& registered);

/// Joins memory that all ranks have exported by these names. An error, on all ranks alike, if that
/// can't be. Collective.
Result<exec::CudaMulticast> join_multicast(DeviceRank& self,
                                           const std::vector<exec::CudaName>& names);

}  // namespace tutti
