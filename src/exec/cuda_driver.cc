#include "exec/cuda_driver.h"

#include <type_traits>
#include <utility>

namespace tutti::exec {
namespace {

CUdeviceptr address_of(const std::byte* at) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
}

/// Whether it is there.
template <class Function>
bool find(const char* name, Function& function) {
  constexpr unsigned kVersion = 12010;  // The first with all of them.
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    cudaGetLastError();
    return false;
  }
  function = reinterpret_cast<Function>(found);
  return true;
}

CudaDriver look_up() {
  CudaDriver driver;
  bool all = find("cuDeviceGetAttribute", driver.device_attribute);
  all = find("cuMemGetAllocationGranularity", driver.memory_granularity) && all;
  all = find("cuMemCreate", driver.create) && all;
  all = find("cuMemRelease", driver.release) && all;
  all = find("cuMemAddressReserve", driver.reserve) && all;
  all = find("cuMemAddressFree", driver.free) && all;
  all = find("cuMemMap", driver.map) && all;
  all = find("cuMemUnmap", driver.unmap) && all;
  all = find("cuMemSetAccess", driver.set_access) && all;
  all = find("cuMemGetAddressRange", driver.address_range) && all;
  all = find("cuMemRetainAllocationHandle", driver.retain) && all;
  all = find("cuMemGetAllocationPropertiesFromHandle", driver.properties) && all;
  all = find("cuMemExportToShareableHandle", driver.export_handle) && all;
  all = find("cuMemImportFromShareableHandle", driver.import_handle) && all;
  driver.has_memory = all;
  all = find("cuMulticastCreate", driver.multicast_create) && all;
  all = find("cuMulticastGetGranularity", driver.multicast_granularity) && all;
  all = find("cuMulticastAddDevice", driver.add_device) && all;
  all = find("cuMulticastBindMem", driver.bind) && all;
  driver.has_multicast = all;
  return driver;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = look_up();
  return driver;
}

Status driver_status(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return ok();
  return Error{Code::kSystem, what + ": error " + std::to_string(result) + " of the CUDA driver"};
}

CUmemLocation location_of(int device) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CudaMapping& CudaMapping::operator=(CudaMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(reserved_, other.reserved_);
  std::swap(parts_, other.parts_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

CudaMapping::~CudaMapping() {
  if (data_ == nullptr) return;
  CUdeviceptr at = address_of(data_);
  for (const std::size_t bytes : parts_) {
    cuda_driver().unmap(at, bytes);
    at += bytes;
  }
  cuda_driver().free(address_of(data_), reserved_);
}

Result<CudaMapping> CudaMapping::reserve(std::size_t bytes) {
  CudaMapping mapping;
  CUdeviceptr at = 0;
  TUTTI_CHECK_OK(driver_status(cuda_driver().reserve(&at, bytes, 0, 0, 0),
                               "reserving addresses for " + std::to_string(bytes) + " bytes"));
  mapping.data_ = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at));
  mapping.reserved_ = bytes;
  return mapping;
}

Status CudaMapping::add(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const std::string what = "mapping " + std::to_string(bytes) + " bytes of a device's memory";
  if (bytes == 0 || bytes > reserved_ - mapped_) {
    return Error{Code::kMismatch,
                 what + ": only " + std::to_string(reserved_ - mapped_) + " were said to be there"};
  }
  TUTTI_CHECK_OK(
      driver_status(cuda_driver().map(address_of(data_) + mapped_, bytes, 0, handle, 0), what));
  parts_.push_back(bytes);
  mapped_ += bytes;
  return ok();
}

Status CudaMapping::allow(const std::vector<int>& devices) {
  return allow_access(data_, mapped_, devices);
}

Status allow_access(std::byte* at, std::size_t bytes, const std::vector<int>& devices) {
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices) {
    access.push_back({location_of(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return driver_status(
      cuda_driver().set_access(address_of(at), bytes, access.data(), access.size()),
      "access to " + std::to_string(bytes) + " bytes of a device's memory");
}

}  // namespace tutti::exec
