// File: simt/faults.cc: kernels that are wrong in a way of their own; the engine has to say how.
// The argument is the case; faults_test.sh has what must be said.
#include "simt/language.h"
// The language comes first.
#include <cstdio>
#include <cstring>

#include "cuda/driver/driver.h"

namespace {

using tutti::cuda::load;
using tutti::cuda::load_acquire;
using tutti::cuda::store;

__global__ void fault(int kind, std::uint64_t* at) {
  switch (kind) {
    case 0:  // One thread of a warp returns before a barrier; the others wait for it.
      if (threadIdx.x == 7) return;
      __syncthreads();
      break;
    case 1:  // Halves of a block at different barriers.
      if (threadIdx.x < 32) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case 2:  // A lane that is not in the mask.
      __shfl_sync(0xffffu, 1, 0);
      break;
    case 3:  // Lanes of a warp in different collectives.
      if (threadIdx.x % 2 == 0) {
        __ballot_sync(~0u, 1);
      } else {
        __shfl_sync(~0u, 1, 0);
      }
      break;
    case 4:  // Half of a warp waits for the other, which waits at the barrier.
      if (threadIdx.x < 16) __syncwarp();
      if (threadIdx.x != 63) __syncthreads();
      if (threadIdx.x == 63) __syncwarp(1u << 31 | 1u << 30);
      break;
    case 5:  // Nobody ever sets it.
      while (load_acquire(at) != 12345) continue;
      break;
    case 6:  // Another device's memory.
    case 8:  // The device's own, mapped, but to which nobody was given access.
      if (threadIdx.x + blockIdx.x == 0) store(at, load<std::uint64_t>(at));
      break;
    case 7: __trap();
    default: break;
  }
}

constexpr const char* kCases[] = {"left", "places", "mask", "mixed", "deadlock",
                                  "hang", "peer",   "trap", "mapped"};

/// Memory of device 0 that the driver mapped.
void* mapped() {
  using namespace tutti::exec;
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  static auto mapping = CudaMapping::reserve(kBytes);
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = location_of(0);
  CUmemGenericAllocationHandle handle = 0;
  const bool made = cuda_driver().create(&handle, kBytes, &wanted, 0) == CUDA_SUCCESS && mapping &&
                    mapping->add(handle, kBytes);
  return made ? mapping->data() : nullptr;
}

}  // namespace

int main(int count, char** words) {
  for (int kind = 0; kind < static_cast<int>(std::size(kCases)); ++kind) {
    if (count < 2 || std::strcmp(words[1], kCases[kind]) != 0) continue;
    void* memory = nullptr;
    cudaSetDevice(kind == 6 ? 1 : 0);
    cudaMalloc(&memory, 64);
    cudaMemset(memory, 0, 64);
    cudaSetDevice(0);
    if (kind == 8) memory = mapped();
    auto* at = static_cast<std::uint64_t*>(memory);
    void* list[] = {&kind, &at};
    cudaLaunchKernel(TUTTI_KERNEL_HANDLE(fault), dim3(2), dim3(64), list, 0, nullptr);
    cudaDeviceSynchronize();
    return 0;
  }
  std::fputs("usage: simt_faults left|places|mask|mixed|deadlock|hang|peer|trap|mapped\n", stderr);
  return 2;
}
