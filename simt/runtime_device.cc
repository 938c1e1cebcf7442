// File: simt/runtime_device.cc: devices, errors, and launching kernels.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "simt/runtime.h"

namespace tutti::simt {
namespace {

thread_local int chosen_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

constexpr std::size_t kMostSharedBytes = std::size_t{227} << 10;
constexpr unsigned kMostThreads = 1024;

bool is_device(int device) { return device >= 0 && device < settings().devices; }

/// A launch number for each device, so that seeds do not depend on when streams run.
std::uint64_t next_launch(int device) {
  static std::atomic<std::uint64_t> numbers[kMostDevices];
  return numbers[device]++;
}

std::size_t blocks_in(dim3 grid) { return std::size_t{grid.x} * grid.y * grid.z; }

}  // namespace

int this_device() { return chosen_device; }

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define TUTTI_SIMT_NAME(name) \
  case name: return #name;
    TUTTI_SIMT_NAME(cudaSuccess)
    TUTTI_SIMT_NAME(cudaErrorCooperativeLaunchTooLarge)
    TUTTI_SIMT_NAME(cudaErrorDeviceUninitialized)
    TUTTI_SIMT_NAME(cudaErrorHostMemoryAlreadyRegistered)
    TUTTI_SIMT_NAME(cudaErrorHostMemoryNotRegistered)
    TUTTI_SIMT_NAME(cudaErrorIllegalState)
    TUTTI_SIMT_NAME(cudaErrorInvalidConfiguration)
    TUTTI_SIMT_NAME(cudaErrorInvalidDevice)
    TUTTI_SIMT_NAME(cudaErrorInvalidDeviceFunction)
    TUTTI_SIMT_NAME(cudaErrorInvalidResourceHandle)
    TUTTI_SIMT_NAME(cudaErrorInvalidValue)
    TUTTI_SIMT_NAME(cudaErrorMapBufferObjectFailed)
    TUTTI_SIMT_NAME(cudaErrorMemoryAllocation)
    TUTTI_SIMT_NAME(cudaErrorNotReady)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessAlreadyEnabled)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessNotEnabled)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessUnsupported)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureUnsupported)
    TUTTI_SIMT_NAME(cudaErrorSymbolNotFound)
#undef TUTTI_SIMT_NAME
    default: return "an error that the simulator never gives";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = settings().devices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return failed(cudaErrorInvalidDevice);
  chosen_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = chosen_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_device(device)) return failed(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMultiProcessorCount: *value = settings().multiprocessors; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = static_cast<int>(kMostThreads); break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kMostSharedBytes);
      break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrPciBusId: *value = 0x10 + device; break;
    default: return failed(cudaErrorInvalidValue);  // Nobody has needed it yet.
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!is_device(device)) return failed(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                static_cast<unsigned>(0x10 + device));
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  unsigned bus = 0;
  if (std::sscanf(text, "0000:%x:00.0", &bus) != 1 || !is_device(static_cast<int>(bus) - 0x10)) {
    return failed(cudaErrorInvalidValue);
  }
  *device = static_cast<int>(bus) - 0x10;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  *attributes = {};
  attributes->maxThreadsPerBlock = static_cast<int>(kMostThreads);
  return find_kernel(kernel) != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int,
                                                          std::size_t) {
  *blocks = 1;
  return find_kernel(kernel) != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t handle) {
  const Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  const std::size_t threads = blocks_in(block);
  if (threads == 0 || threads > kMostThreads || blocks_in(grid) == 0 ||
      shared_bytes > kMostSharedBytes) {
    return failed(cudaErrorInvalidConfiguration);
  }
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr || stream->device != chosen_device) {
    return failed(cudaErrorInvalidResourceHandle);  // Another device's stream.
  }
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = (kernel->argument_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::shared_ptr<void> packed(std::aligned_alloc(kAlignment, bytes), std::free);
  kernel->pack(arguments, packed.get());
  return enqueue(handle, [=, device = stream->device] {
    run({kernel, packed.get(), grid, block, shared_bytes, device, next_launch(device)});
  });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments,
                          config->dynamicSmemBytes, config->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  if (blocks_in(grid) > static_cast<std::size_t>(settings().multiprocessors)) {
    return failed(cudaErrorCooperativeLaunchTooLarge);
  }
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
