// File: simt/runtime_libcuda_work.cc: streams, events, copies, memory of pools and pointers of
// libcuda.so.1, for programs that use the driver alone. They are the runtime's by other names.
//
// A device has one pool, the default one; its attributes change nothing.
#include <cuda.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "simt/runtime.h"

using namespace tutti::simt;

namespace {

CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }
void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }

char pools[kMostDevices];  // A pool's handle is an address in it.
CUmemoryPool pool_of(CUdevice device) { return reinterpret_cast<CUmemoryPool>(pools + device); }
bool is_pool(CUmemoryPool pool) {
  const auto* const at = reinterpret_cast<const char*>(pool);
  return at >= pools && at < pools + settings().devices;
}

template <class T>
CUresult give(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
  return CUDA_SUCCESS;
}

/// What the driver says of memory that the runtime knows; of other memory it says nothing.
CUresult tell(void* to, CUpointer_attribute attribute, CUdeviceptr at) {
  cudaPointerAttributes known = {};
  cudaPointerGetAttributes(&known, pointer(at));
  if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
    return give(to, is_of_pool(pointer(at)) ? pool_of(known.device) : nullptr);
  if (known.type == cudaMemoryTypeUnregistered) return CUDA_ERROR_INVALID_VALUE;
  const bool device = known.type == cudaMemoryTypeDevice;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT: {
      CUcontext context = nullptr;
      cuDevicePrimaryCtxRetain(&context, known.device);
      return give(to, context);
    }
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(to, device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return give(to, at);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return device ? CUDA_ERROR_INVALID_VALUE : give(to, pointer(at));
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return give(to, known.device);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: return give(to, 0U);
    case CU_POINTER_ATTRIBUTE_MAPPED: return give(to, true);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return give(to, false);
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return result_of(cudaMemcpy(pointer(to), pointer(from), bytes, cudaMemcpyDefault));
}
CUdeviceptr address(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

extern "C" {

CUresult cuGetErrorName(CUresult error, const char** text) {
  switch (error) {
#define TUTTI_SIMT_NAME(name) \
  case name: *text = #name; return CUDA_SUCCESS;
    TUTTI_SIMT_NAME(CUDA_SUCCESS)
    TUTTI_SIMT_NAME(CUDA_ERROR_INVALID_VALUE)
    TUTTI_SIMT_NAME(CUDA_ERROR_OUT_OF_MEMORY)
    TUTTI_SIMT_NAME(CUDA_ERROR_DEVICE_UNAVAILABLE)
    TUTTI_SIMT_NAME(CUDA_ERROR_INVALID_DEVICE)
    TUTTI_SIMT_NAME(CUDA_ERROR_INVALID_CONTEXT)
    TUTTI_SIMT_NAME(CUDA_ERROR_INVALID_HANDLE)
    TUTTI_SIMT_NAME(CUDA_ERROR_NOT_FOUND)
    TUTTI_SIMT_NAME(CUDA_ERROR_NOT_READY)
    TUTTI_SIMT_NAME(CUDA_ERROR_NOT_SUPPORTED)
    TUTTI_SIMT_NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
    TUTTI_SIMT_NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
    TUTTI_SIMT_NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
    TUTTI_SIMT_NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    TUTTI_SIMT_NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
#undef TUTTI_SIMT_NAME
    default: *text = nullptr; return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (!exists(device) || name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  cudaDeviceProp properties = {};
  cudaGetDeviceProperties(&properties, device);
  const std::size_t bytes = std::min(std::strlen(properties.name), std::size_t(length) - 1);
  std::memcpy(name, properties.name, bytes);
  name[bytes] = '\0';
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(std::size_t* bytes, CUdevice device) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::size_t available = 0;
  return result_of(cudaMemGetInfo(&available, bytes));
}
CUresult cuMemGetInfo(std::size_t* available, std::size_t* total) {
  return result_of(cudaMemGetInfo(available, total));
}
CUresult cuCtxSynchronize() { return result_of(cudaDeviceSynchronize()); }
CUresult cuCtxGetStreamPriorityRange(int* lowest, int* highest) {
  return result_of(cudaDeviceGetStreamPriorityRange(lowest, highest));
}

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute attribute, CUdeviceptr at) {
  return to == nullptr ? CUDA_ERROR_INVALID_VALUE : tell(to, attribute, at);
}
/// All attributes of memory that the driver does not know are null, as its documentation says.
CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** to,
                                CUdeviceptr at) {
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = tell(to[i], attributes[i], at);
    if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
    if (result == CUDA_SUCCESS) continue;
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
      give(to[i], -2);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
      give(to[i], 0);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
      give(to[i], 0U);
    else if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED)
      give(to[i], false);
    else
      give<void*>(to[i], nullptr);
  }
  return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return result_of(cudaStreamCreateWithPriority(stream, flags, priority));
}
CUresult cuStreamQuery(CUstream stream) { return result_of(cudaStreamQuery(stream)); }
CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) {
  return result_of(cudaStreamGetFlags(stream, flags));
}
CUresult cuStreamGetPriority(CUstream stream, int* priority) {
  return result_of(cudaStreamGetPriority(stream, priority));
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  return result_of(cudaStreamGetId(stream, id));
}
CUresult cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return result_of(cudaStreamGetDevice(stream, device));
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  CUdevice device = 0;
  const CUresult result = cuStreamGetDevice(stream, &device);
  return result == CUDA_SUCCESS ? cuDevicePrimaryCtxRetain(context, device) : result;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return result_of(cudaStreamWaitEvent(stream, event, flags));
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  auto found = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &found);
  *status = static_cast<CUstreamCaptureStatus>(found);
  return result_of(error);
}
CUresult cuEventQuery(CUevent event) { return result_of(cudaEventQuery(event)); }
CUresult cuEventSynchronize(CUevent event) { return result_of(cudaEventSynchronize(event)); }

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy(to, from, bytes);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return copy(to, address(from), bytes);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return copy(address(to), from, bytes);
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return copy(to, from, bytes);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, address(from), bytes, stream);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return cuMemcpyAsync(address(to), from, bytes, stream);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *pool = pool_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return cuDeviceGetDefaultMemPool(pool, device);
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute, void*) {
  return is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* to) {
  if (!is_pool(pool)) return CUDA_ERROR_INVALID_VALUE;
  if (attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
    return give(to, std::uint64_t{0});  // The first ones are ints, and all three are allowed.
  return give(to, 1);
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, std::size_t) {
  return is_pool(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemAllocAsync(CUdeviceptr* at, std::size_t bytes, CUstream stream) {
  void* made = nullptr;
  const cudaError_t error = cudaMallocAsync(&made, bytes, stream);
  *at = address(made);
  return result_of(error);
}
CUresult cuMemAllocFromPoolAsync(CUdeviceptr* at, std::size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return is_pool(pool) ? cuMemAllocAsync(at, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream) {
  return result_of(cudaFreeAsync(pointer(at), stream));
}

}  // extern "C"
