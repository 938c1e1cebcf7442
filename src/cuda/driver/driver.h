// File: cuda/driver/driver.h: functions of the CUDA driver that the runtime has no other name for:
// memory that is made, exported, mapped and bound in steps (cuMem..., cuMulticast...), and a
// thread's context.
//
// They are looked up at run time, once, so that nothing links libcuda, and what an old driver lacks
// is an error in a line.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti::exec {

// The driver's functions: what each is called here and there. Those of memory include contexts.
#define TUTTI_CUDA_MEMORY_FUNCTIONS(X)                  \
  X(context, cuDevicePrimaryCtxRetain)                  \
  X(current, cuCtxGetCurrent)                           \
  X(push, cuCtxPushCurrent)                             \
  X(pop, cuCtxPopCurrent)                               \
  X(device_attribute, cuDeviceGetAttribute)             \
  X(uuid, cuDeviceGetUuid)                              \
  X(memory_granularity, cuMemGetAllocationGranularity)  \
  X(create, cuMemCreate)                                \
  X(release, cuMemRelease)                              \
  X(reserve, cuMemAddressReserve)                       \
  X(free, cuMemAddressFree)                             \
  X(map, cuMemMap)                                      \
  X(unmap, cuMemUnmap)                                  \
  X(set_access, cuMemSetAccess)                         \
  X(address_range, cuMemGetAddressRange)                \
  X(pointer_attribute, cuPointerGetAttribute)           \
  X(retain, cuMemRetainAllocationHandle)                \
  X(properties, cuMemGetAllocationPropertiesFromHandle) \
  X(export_handle, cuMemExportToShareableHandle)        \
  X(import_handle, cuMemImportFromShareableHandle)
#define TUTTI_CUDA_MULTICAST_FUNCTIONS(X)             \
  X(multicast_create, cuMulticastCreate)              \
  X(multicast_granularity, cuMulticastGetGranularity) \
  X(add_device, cuMulticastAddDevice)                 \
  X(bind, cuMulticastBindMem)

/// Null: this driver has none.
struct CudaDriver {
#define TUTTI_CUDA_POINTER(field, name) decltype(&name) field = nullptr;
  TUTTI_CUDA_MEMORY_FUNCTIONS(TUTTI_CUDA_POINTER)
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_POINTER)
  TUTTI_CUDA_POINTER(range_handle, cuMemGetHandleForAddressRange)
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
