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

/// Null: this driver has none.
/// It has more than 15 fields: one for each function of the driver that is loaded.
struct CudaDriver {
  decltype(&cuDevicePrimaryCtxRetain) context = nullptr;
  decltype(&cuCtxGetCurrent) current = nullptr;
  decltype(&cuCtxPushCurrent) push = nullptr;
  decltype(&cuCtxPopCurrent) pop = nullptr;
  decltype(&cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&cuDeviceGetUuid) uuid = nullptr;
  decltype(&cuMemGetAllocationGranularity) memory_granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAddressRange) address_range = nullptr;
  decltype(&cuPointerGetAttribute) pointer_attribute = nullptr;
  decltype(&cuMemRetainAllocationHandle) retain = nullptr;
  decltype(&cuMemGetAllocationPropertiesFromHandle) properties = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMulticastCreate) multicast_create = nullptr;
  decltype(&cuMulticastGetGranularity) multicast_granularity = nullptr;
  decltype(&cuMulticastAddDevice) add_device = nullptr;
  decltype(&cuMulticastBindMem) bind = nullptr;

  decltype(&cuMemGetHandleForAddressRange) range_handle = nullptr;

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
