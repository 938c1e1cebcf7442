#include "cuda/mesh/residency.h"

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "base/log.h"
#include "cuda/driver/memory.h"

namespace tutti::exec {
namespace {

struct Taken {
  std::mutex mutex;
  std::map<int, std::size_t> blocks;  // By device.
  std::set<int> warned;
};
Taken& taken_blocks() {
  static auto* const one = new Taken();  // Communicators may go when the process ends.
  return *one;
}

}  // namespace

Result<std::size_t> blocks_of_device(int device) {
  int room = 0;
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&room, cudaDevAttrMultiProcessorCount, device),
                  "asking device " + std::to_string(device) + " for its size"));
  return static_cast<std::size_t>(room);
}

CudaResidency::CudaResidency(int device, std::size_t blocks, std::size_t room)
    : device_(device), blocks_(blocks) {
  Taken& taken = taken_blocks();
  const std::lock_guard lock(taken.mutex);
  const std::size_t all = taken.blocks[device] += blocks;
  if (all <= room || !taken.warned.insert(device).second) return;
  log::warn(
      log::Part::kDevices,
      "communicators of this process may have {} blocks on device {} at a time, which runs {}: "
      "calls of several that run side by side may wait for each other until their deadline; fewer "
      "lanes "
      "(TUTTI_LANES), or one call at a time, do without",
      all, device, room);
}

CudaResidency::~CudaResidency() {
  if (blocks_ == 0) return;
  Taken& taken = taken_blocks();
  const std::lock_guard lock(taken.mutex);
  taken.blocks[device_] -= blocks_;
}

std::size_t CudaResidency::taken(int device) {
  Taken& taken = taken_blocks();
  const std::lock_guard lock(taken.mutex);
  return taken.blocks[device];
}

}  // namespace tutti::exec
