// File: cuda/driver/memory.h: a device's memory, and the CUDA runtime's errors as ours.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "cuda/driver/driver.h"
#include "tutti/result.h"

namespace tutti::exec {

/// "allocating 64 bytes on device 0: out of memory (cudaErrorMemoryAllocation)".
Status cuda_status(cudaError_t error, const std::string& what);

/// Whether a call succeeded, where that is no error; the next one is not to find it again.
inline bool succeeds(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess;
}
/// 0 also where the driver does not know the attribute.
inline int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  return succeeds(cudaDeviceGetAttribute(&value, attribute, device)) ? value : 0;
}
/// Compute capability, as 90.
inline int capability_of(int device) {
  return 10 * attribute_of(device, cudaDevAttrComputeCapabilityMajor) +
         attribute_of(device, cudaDevAttrComputeCapabilityMinor);
}

/// This thread's device is another one for a while. Its context is put before the thread's own, and
/// taken away again, and not chosen by cudaSetDevice: to go back to what a thread had by that would
/// be device 0, and a context there, for one that has chosen none yet; and never a context that a
/// program made by itself.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  bool pushed_ = false;
};

/// While it lives this thread may allocate, wait and query though other threads capture streams.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Does what `enqueue` puts onto a stream of `device`, this thread's; waits for that, and for
/// nothing else that runs there. Other threads may capture streams meanwhile.
Status do_at_once(int device, const std::string& what,
                  const std::function<cudaError_t(cudaStream_t)>& enqueue);

/// Zeroes memory of `device`, this thread's; waits for that, and for nothing else that runs there.
Status clear_memory(int device, std::byte* at, std::size_t bytes, const std::string& what);

/// Memory of a device, freed with the object. The owner makes sure that nothing touches it by then:
/// the destructor does not wait for that. But freeing memory of cudaMalloc or of the driver may
/// wait until the device is idle ("may perform implicit synchronization"). Nothing else here waits
/// for what runs on the device.
class CudaMemory {
 public:
  /// Zeroed, and aligned to 256 bytes.
  static Result<CudaMemory> allocate(int device, std::size_t bytes);
  /// The same, to be exported (share.h): of the driver, in its granules, where that makes
  /// memory that can be; else the runtime's.
  static Result<CudaMemory> allocate_for_peers(int device, std::size_t bytes);
  /// The same, for kernels of this device alone. Freeing it waits for nothing either.
  static Result<CudaMemory> allocate_private(int device, std::size_t bytes);
  /// Lets all devices of this process in that can access this one's memory, where it is the
  /// driver's.
  Status allow_peers();
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  /// Waits until the bytes are there.
  Status write(std::size_t offset, const void* from, std::size_t bytes);
  Status read(std::size_t offset, void* to, std::size_t bytes) const;

 private:
  struct Free {
    int device;
    CudaMapping mapping;  // If it is the driver's.
    void operator()(std::byte* data);
  };
  /// kUnsupported: the system has no such memory.
  Status map(int device, std::size_t bytes);
  int device() const { return data_.get_deleter().device; }

  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

/// Memory of the host that all devices can access: what both sides look at while a kernel runs. To
/// free it might wait for the device, so it is kept for the next of that size.
class CudaHostMemory {
 public:
  /// Zeroed.
  static Result<CudaHostMemory> allocate(std::size_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace tutti::exec
