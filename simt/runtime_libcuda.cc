// File: simt/runtime_libcuda.cc: the driver's own library, libcuda.so.1, as far as programs that
// use the runtime ask it about devices, contexts and pointers.
//
// The numbers of errors and attributes are those of the runtime. A device has one context, its
// primary one, which is there from the start: the current one is that of the device that the thread
// has chosen, and to make another current chooses its device. Functions that there are not say so
// when they are called (CMakeLists.txt has their names).
#include <cuda.h>

#include <cstring>

#include "simt/machine.h"
#include "simt/runtime.h"

using namespace tutti::simt;

namespace {

CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }
bool exists(CUdevice device) { return device >= 0 && device < settings().devices; }

/// A context's handle is its device's number and one.
CUcontext context_of(CUdevice device) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(device) + 1);
}
CUdevice device_of(CUcontext context) {
  return static_cast<CUdevice>(reinterpret_cast<std::uintptr_t>(context)) - 1;
}

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
  *active = 1;
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (!exists(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = context_of(device);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  return exists(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = context_of(this_device());
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
  // To have none current is to use the runtime's, here as anywhere.
  if (context == nullptr) return CUDA_SUCCESS;
  if (!exists(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
  return result_of(cudaSetDevice(device_of(context)));
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = this_device();
  return CUDA_SUCCESS;
}

}  // extern "C"
