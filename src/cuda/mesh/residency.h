// File: cuda/mesh/residency.h: whether all that ranks of this process have on a device can run at a
// time.
//
// Blocks of a rank wait for those of others, so a call whose blocks find no room waits for what is
// there to end. A mesh that has no room by itself is refused (mesh.h). Several meshes may have too
// little room together. That matters only for calls that run side by side. So a warning says it,
// and calls that wait for each other end at their deadline.
#pragma once
#include <cstddef>
#include <utility>

#include "tutti/result.h"

namespace tutti::exec {

/// Blocks that a device runs at a time, of kernels that leave none room beside them: one for each
/// multiprocessor. kSystem: what the runtime said.
Result<std::size_t> blocks_of_device(int device);

/// Blocks that a mesh may have on a device at a time, counted while this lives.
class CudaResidency {
 public:
  CudaResidency() = default;
  /// Warns, once for each device, if all meshes together have no room any more. Any thread.
  CudaResidency(int device, std::size_t blocks, std::size_t room);
  CudaResidency(CudaResidency&& other) noexcept { *this = std::move(other); }
  CudaResidency& operator=(CudaResidency&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(blocks_, other.blocks_);
    return *this;
  }
  ~CudaResidency();

  /// The blocks of all meshes of this process. Any thread.
  static std::size_t taken(int device);

 private:
  int device_ = -1;
  std::size_t blocks_ = 0;
};

}  // namespace tutti::exec
