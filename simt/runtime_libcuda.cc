// File: simt/runtime_libcuda.cc: the driver's own library, libcuda.so.1, as far as programs that
// use the runtime ask it about devices, contexts and pointers.
//
// The numbers of errors and attributes are those of the runtime. A device has one context, its
// primary one. A thread's current context goes before the device that it has chosen, which stays
// chosen. Functions that there are not say so when they are called (CMakeLists.txt has their
// names).
#include <cuda.h>

#include <cstring>
#include <iterator>

#include "simt/machine.h"
#include "simt/runtime.h"

using namespace tutti::simt;

namespace {

CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }

/// A context's handle is its device's number and one.
CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
}
CUdevice device_of(CUcontext context) {
  return static_cast<CUdevice>(reinterpret_cast<std::uintptr_t>(context)) - 1;
}

/// The context that was current before the push; -1: none.
struct Covered {
  int contexts[64];
  unsigned count;
};
thread_local Covered covered = {};  // Not a vector: it is asked for at the process's end, too.

}  // namespace

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return result_of(cudaDriverGetVersion(version)); }
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = cudaGetErrorString(static_cast<cudaError_t>(error));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) { return result_of(cudaGetDeviceCount(count)); }
CUresult cuDeviceGet(CUdevice* device, int index) {
  *device = index;
  return exists(index) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return result_of(cudaDeviceGetPCIBusId(text, length, device));
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return result_of(cudaDeviceGetAttribute(value, static_cast<cudaDeviceAttr>(attribute), device));
}
/// As cudaGetDeviceProperties says.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  *uuid = {};
  std::memcpy(uuid->bytes, &device, sizeof device);
  return CUDA_SUCCESS;
}
CUresult cuMemGetHandleForAddressRange(void* to, CUdeviceptr at, std::size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long) {
  if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD) return CUDA_ERROR_INVALID_VALUE;
  const int descriptor = export_range(reinterpret_cast<const void*>(at), bytes);
  if (descriptor < 0) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(to, &descriptor, sizeof(descriptor));
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return result_of(cudaDeviceCanAccessPeer(can, device, peer));
}
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice device,
                                 CUdevice peer) {
  return result_of(
      cudaDeviceGetP2PAttribute(value, static_cast<cudaDeviceP2PAttr>(attribute), device, peer));
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = static_cast<int>(contexts() >> device & 1);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  if ((settings().taken >> device & 1) != 0) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  make_context(device);
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current_context() < 0 ? nullptr : context_of(current_context());
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  if (context != nullptr && !exists(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  set_current_context(context == nullptr ? -1 : device_of(context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext context) {
  if (context == nullptr || !exists(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  if (covered.count == std::size(covered.contexts)) return CUDA_ERROR_OUT_OF_MEMORY;
  covered.contexts[covered.count++] = current_context();
  set_current_context(device_of(context));
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (covered.count == 0) return CUDA_ERROR_INVALID_CONTEXT;
  cuCtxGetCurrent(context);
  set_current_context(covered.contexts[--covered.count]);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  if (current_context() < 0) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context();
  return CUDA_SUCCESS;
}

}  // extern "C"
