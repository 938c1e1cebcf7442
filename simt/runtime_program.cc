// File: simt/runtime_program.cc: what programs ask of the runtime that our library does not:
// properties, memory in the order of a stream, and what is only remembered.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "simt/machine.h"
#include "simt/runtime.h"

using namespace tutti::simt;

namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  *properties = {};
  cudaDeviceProp& it = *properties;
  std::snprintf(it.name, sizeof it.name, "%s (simulated)", nvml_gpu(device).name.c_str());
  const int number = device;
  std::memcpy(it.uuid.bytes, &number, sizeof number);
  std::size_t available = 0;
  cudaMemGetInfo(&available, &it.totalGlobalMem);
  it.warpSize = attribute(cudaDevAttrWarpSize, device);
  it.maxThreadsPerBlock = attribute(cudaDevAttrMaxThreadsPerBlock, device);
  it.maxThreadsDim[0] = attribute(cudaDevAttrMaxBlockDimX, device);
  it.maxThreadsDim[1] = attribute(cudaDevAttrMaxBlockDimY, device);
  it.maxThreadsDim[2] = attribute(cudaDevAttrMaxBlockDimZ, device);
  it.maxGridSize[0] = attribute(cudaDevAttrMaxGridDimX, device);
  it.maxGridSize[1] = attribute(cudaDevAttrMaxGridDimY, device);
  it.maxGridSize[2] = attribute(cudaDevAttrMaxGridDimZ, device);
  it.sharedMemPerBlock =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlock, device));
  it.sharedMemPerBlockOptin =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  it.sharedMemPerMultiprocessor =
      static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  it.reservedSharedMemPerBlock =
      static_cast<std::size_t>(attribute(cudaDevAttrReservedSharedMemoryPerBlock, device));
  it.regsPerBlock = attribute(cudaDevAttrMaxRegistersPerBlock, device);
  it.regsPerMultiprocessor = attribute(cudaDevAttrMaxRegistersPerMultiprocessor, device);
  it.major = attribute(cudaDevAttrComputeCapabilityMajor, device);
  it.minor = attribute(cudaDevAttrComputeCapabilityMinor, device);
  it.multiProcessorCount = attribute(cudaDevAttrMultiProcessorCount, device);
  it.maxThreadsPerMultiProcessor = attribute(cudaDevAttrMaxThreadsPerMultiProcessor, device);
  it.maxBlocksPerMultiProcessor = attribute(cudaDevAttrMaxBlocksPerMultiprocessor, device);
  it.pciDomainID = attribute(cudaDevAttrPciDomainId, device);
  it.pciBusID = attribute(cudaDevAttrPciBusId, device);
  it.pciDeviceID = attribute(cudaDevAttrPciDeviceId, device);
  it.unifiedAddressing = it.canMapHostMemory = it.concurrentKernels = it.cooperativeLaunch = 1;
  it.memoryPoolsSupported = it.hostRegisterSupported = it.ipcEventSupported = 1;
  return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return exists(device) ? cudaSuccess : failed(cudaErrorInvalidDevice);
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) { return answer(flags, 0); }
/// Waits; memory stays, as a program without any left does not notice.
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = kHighestPriority;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int) {
  return find_kernel(kernel) != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaFuncSetCacheConfig(const void* kernel, cudaFuncCache) {
  return find_kernel(kernel) != nullptr ? cudaSuccess : failed(cudaErrorInvalidDeviceFunction);
}

// Streams.
cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  TUTTI_SIMT_FIND(stream, handle);
  return answer(priority, stream->priority);
}
cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  TUTTI_SIMT_FIND(stream, handle);
  return answer(flags, stream->flags);
}
// In a capture an error, which ends it: seen with CUDA on an H200.
cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  TUTTI_SIMT_FIND(stream, handle);
  if (stream->capture != nullptr) {
    invalidate(*stream->capture);
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  return answer(id, stream->id);
}
cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  TUTTI_SIMT_FIND(stream, handle);
  return answer(device, stream->device);
}
cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data,
                                  unsigned) {
  return enqueue(handle, [=] { function(handle, cudaSuccess, data); });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(executable, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }

// Memory. Freeing in the order of a stream waits for it instead.
cudaError_t cudaMallocAsync(void** at, std::size_t bytes, cudaStream_t stream) {
  return allocate_of_pool(at, bytes, stream);
}
cudaError_t cudaFreeAsync(void* at, cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  return error != cudaSuccess ? error : cudaFree(at);
}
cudaError_t cudaMallocManaged(void** at, std::size_t bytes, unsigned) {
  return cudaMalloc(at, bytes);
}
cudaError_t cudaHostGetFlags(unsigned* flags, void*) {
  return answer(flags, cudaHostAllocMapped | cudaHostAllocPortable);
}

}  // extern "C"
