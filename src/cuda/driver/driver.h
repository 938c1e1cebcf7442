// File: cuda/driver/driver.h: functions of the CUDA driver that the runtime has no other name for:
// memory that is made, exported, mapped and bound in steps (cuMem..., cuMulticast...), values that
// streams write and wait for, and a thread's context.
//
// They are looked up at run time, once, so that nothing links libcuda, and what an old driver lacks
// is an error in a line.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/result.h"

namespace tutti::exec {

// The driver's functions: what each is called here and there, and the CUDA that its prototype is
// of: the latest that is not above kCudaDriverVersion (driver.cc compares them with
// cudaTypedefs.h). Those of memory include contexts.
inline constexpr unsigned kCudaDriverVersion = 12010;  // The first with all of them.
#define TUTTI_CUDA_MEMORY_FUNCTIONS(X)                         \
  X(context, cuDevicePrimaryCtxRetain, 7000)                   \
  X(current, cuCtxGetCurrent, 4000)                            \
  X(push, cuCtxPushCurrent, 4000)                              \
  X(pop, cuCtxPopCurrent, 4000)                                \
  X(device_attribute, cuDeviceGetAttribute, 2000)              \
  X(uuid, cuDeviceGetUuid, 11040)                              \
  X(memory_granularity, cuMemGetAllocationGranularity, 10020)  \
  X(create, cuMemCreate, 10020)                                \
  X(release, cuMemRelease, 10020)                              \
  X(reserve, cuMemAddressReserve, 10020)                       \
  X(free, cuMemAddressFree, 10020)                             \
  X(map, cuMemMap, 10020)                                      \
  X(unmap, cuMemUnmap, 10020)                                  \
  X(set_access, cuMemSetAccess, 10020)                         \
  X(address_range, cuMemGetAddressRange, 3020)                 \
  X(pointer_attribute, cuPointerGetAttribute, 4000)            \
  X(retain, cuMemRetainAllocationHandle, 11000)                \
  X(properties, cuMemGetAllocationPropertiesFromHandle, 10020) \
  X(export_handle, cuMemExportToShareableHandle, 10020)        \
  X(import_handle, cuMemImportFromShareableHandle, 10020)
#define TUTTI_CUDA_MULTICAST_FUNCTIONS(X)                    \
  X(multicast_create, cuMulticastCreate, 12010)              \
  X(multicast_granularity, cuMulticastGetGranularity, 12010) \
  X(add_device, cuMulticastAddDevice, 12010)                 \
  X(bind, cuMulticastBindAddr, 12010)                        \
  X(unbind, cuMulticastUnbind, 12010)

#define TUTTI_CUDA_OTHER_FUNCTIONS(X)                   \
  X(range_handle, cuMemGetHandleForAddressRange, 11070) \
  X(write_value, cuStreamWriteValue64, 11070)           \
  X(wait_value, cuStreamWaitValue64, 11070)

/// Null: this driver has none.
struct CudaDriver {
#define TUTTI_CUDA_POINTER(field, name, version) decltype(&name) field = nullptr;
  TUTTI_CUDA_MEMORY_FUNCTIONS(TUTTI_CUDA_POINTER)
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_POINTER)
  TUTTI_CUDA_OTHER_FUNCTIONS(TUTTI_CUDA_POINTER)
#undef TUTTI_CUDA_POINTER
  /// All that contexts and memory take, and all that multicast memory takes besides.
  bool has_memory = false, has_multicast = false;
};
const CudaDriver& cuda_driver();

/// "mapping 64 bytes: out of memory (error 2 of the CUDA driver)".
Status driver_status(CUresult result, const std::string& what);

/// The context that the runtime uses on a device; made if need be, and kept. Any thread. kSystem:
/// what the driver said, as of a device that another process has for itself alone.
Result<CUcontext> context_of(int device);

CUmemLocation location_of(int device);

/// A handle of the driver's, of memory or of a multicast object; released with the object.
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(CUmemGenericAllocationHandle handle) : handle_(handle), there_(true) {}
  CudaHandle(CudaHandle&& other) noexcept { *this = std::move(other); }
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(there_, other.there_);
    return *this;
  }
  ~CudaHandle() {
    if (there_) cuda_driver().release(handle_);
  }
  /// For memory that the driver mapped; empty for any other.
  static CudaHandle at(std::byte* data);
  bool there() const { return there_; }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_ = 0;
  bool there_ = false;
};

/// A range of addresses that memory is mapped to, of whole granules of the driver; unmapped with
/// the object, which waits for nothing that a device does.
class CudaMapping {
 public:
  static Result<CudaMapping> reserve(std::size_t bytes);
  /// What comes next in the range. The handle may be released then.
  Status add(CUmemGenericAllocationHandle handle, std::size_t bytes);
  /// Gives these devices access to all that is mapped.
  Status allow(const std::vector<int>& devices);
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return data_.get_deleter().reserved; }

 private:
  struct Unmap {
    std::size_t reserved;
    std::vector<std::size_t> parts;  // Bytes of what is mapped, in their order.
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
  std::size_t mapped_ = 0;  // The bytes of all parts.
};
/// Gives these devices access to a range that is mapped already.
Status allow_access(std::byte* at, std::size_t bytes, const std::vector<int>& devices);

}  // namespace tutti::exec
