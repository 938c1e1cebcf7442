// File: kernels/cuda/reach.cu: the kernel that writes a pattern to each peer's memory (reach.h).
#include "kernels/cuda/reach.h"

#include "kernels/cuda/body.h"

namespace tutti::cuda {
namespace {

__global__ void __launch_bounds__(kMostDeviceRanks)
    reach(const __grid_constant__ ReachArguments arguments) {
  std::uint64_t* const line = arguments.lines[threadIdx.x];
  if (line != nullptr) store_release(line, arguments.pattern);
}

}  // namespace

const void* reach_kernel() { return TUTTI_KERNEL_HANDLE(reach); }

}  // namespace tutti::cuda
