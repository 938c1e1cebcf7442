#include "exec/cuda_multicast.h"

#include <algorithm>
#include <set>
#include <string>

#include "exec/cuda_memory.h"
#include "kernels/cuda/fused.h"

namespace tutti::exec {
namespace {

Error unsupported(const std::string& why) {
  return {Code::kUnsupported, "multicast memory: " + why};
}

CUmemLocation location_of(int device) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

Status driver_status(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return ok();
  return Error{Code::kSystem, "multicast memory: " + what + ": error " + std::to_string(result) +
                                  " of the CUDA driver"};
}

}  // namespace

struct CudaMulticast::Driver {
  decltype(&cuDeviceGetAttribute) device_attribute = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMulticastCreate) multicast_create = nullptr;
  decltype(&cuMulticastGetGranularity) granularity = nullptr;
  decltype(&cuMulticastAddDevice) add_device = nullptr;
  decltype(&cuMulticastBindMem) bind = nullptr;
};

Status CudaMulticast::look_up() {
  driver_ = std::make_unique<Driver>();
  Status status = ok();
  const auto find = [&status](const char* name, auto& function) {
    constexpr unsigned kVersion = 12010;  // The first with all of them.
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
      cudaGetLastError();
      status = unsupported("the CUDA driver has no " + std::string(name));
      return;
    }
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find("cuDeviceGetAttribute", driver_->device_attribute);
  find("cuMemCreate", driver_->create);
  find("cuMemRelease", driver_->release);
  find("cuMemAddressReserve", driver_->reserve);
  find("cuMemAddressFree", driver_->free);
  find("cuMemMap", driver_->map);
  find("cuMemUnmap", driver_->unmap);
  find("cuMemSetAccess", driver_->set_access);
  find("cuMulticastCreate", driver_->multicast_create);
  find("cuMulticastGetGranularity", driver_->granularity);
  find("cuMulticastAddDevice", driver_->add_device);
  find("cuMulticastBindMem", driver_->bind);
  return status;
}

Result<std::unique_ptr<CudaMulticast>> CudaMulticast::create(std::vector<int> devices,
                                                             std::size_t bytes,
                                                             std::uint32_t lanes) {
  if (std::set<int>(devices.begin(), devices.end()).size() != devices.size() || devices.empty()) {
    return unsupported("each rank needs a device of its own");
  }
  if (bytes == 0 || lanes == 0) {
    return Error{Code::kInvalidArgument, "multicast memory: no bytes, or no lanes"};
  }
  std::unique_ptr<CudaMulticast> memory(new CudaMulticast);
  memory->devices_ = std::move(devices);
  memory->lanes_ = lanes;
  memory->bytes_ = bytes;
  TUTTI_CHECK_OK(memory->look_up());
  for (const int device : memory->devices_) {
    int supported = 0;
    TUTTI_CHECK_OK(driver_status(memory->driver_->device_attribute(
                                     &supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device),
                                 "asking device " + std::to_string(device)));
    if (supported == 0) return unsupported("device " + std::to_string(device) + " has none");
  }
  TUTTI_CHECK_OK(memory->allocate());
  return memory;
}

/// Reserves addresses, maps the memory there, and lets all devices access it.
Status CudaMulticast::map(std::byte*& at, CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  TUTTI_CHECK_OK(driver_status(driver_->reserve(&address, whole_, 0, 0, 0), "reserving addresses"));
  if (Status mapped = driver_status(driver_->map(address, whole_, 0, handle, 0), "mapping");
      !mapped) {
    driver_->free(address, whole_);
    return mapped;
  }
  at = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
  std::vector<CUmemAccessDesc> access;
  for (const int device : devices_) {
    access.push_back({location_of(device), CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return driver_status(driver_->set_access(address, whole_, access.data(), access.size()),
                       "access from all devices");
}

Status CudaMulticast::allocate() {
  CUmulticastObjectProp object = {};
  object.numDevices = static_cast<unsigned>(devices_.size());
  const std::size_t counters = lanes_ * (cuda::kCounterBytes + sizeof(std::uint64_t));
  const std::size_t data =
      (bytes_ + cuda::kCounterBytes - 1) / cuda::kCounterBytes * cuda::kCounterBytes;
  object.size = data + counters;
  std::size_t granule = 1;
  TUTTI_CHECK_OK(
      driver_status(driver_->granularity(&granule, &object, CU_MULTICAST_GRANULARITY_RECOMMENDED),
                    "its granules"));
  whole_ = object.size = (object.size + granule - 1) / granule * granule;
  CUmemGenericAllocationHandle multicast = 0;
  TUTTI_CHECK_OK(driver_status(driver_->multicast_create(&multicast, &object), "making it"));
  handles_.push_back(multicast);
  for (const int device : devices_) {
    TUTTI_CHECK_OK(driver_status(driver_->add_device(multicast, device),
                                 "adding device " + std::to_string(device)));
  }
  own_.resize(devices_.size());
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    const std::string where = "memory of device " + std::to_string(devices_[rank]);
    CUmemAllocationProp wanted = {};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = location_of(devices_[rank]);
    CUmemGenericAllocationHandle handle = 0;
    TUTTI_CHECK_OK(driver_status(driver_->create(&handle, whole_, &wanted, 0), where));
    handles_.push_back(handle);
    TUTTI_CHECK_OK(driver_status(driver_->bind(multicast, 0, handle, 0, whole_, 0), where));
    TUTTI_CHECK_OK(map(own_[rank], handle));
    const OnDevice on(devices_[rank]);
    TUTTI_CHECK_OK(cuda_status(cudaMemset(own_[rank], 0, whole_), where));
    TUTTI_CHECK_OK(cuda_status(cudaDeviceSynchronize(), where));
  }
  return map(multicast_, multicast);
}

CudaMulticast::~CudaMulticast() {
  if (driver_ == nullptr) return;
  const auto unmap = [this](std::byte* at) {
    if (at == nullptr) return;
    const auto address = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
    driver_->unmap(address, whole_);
    driver_->free(address, whole_);
  };
  unmap(multicast_);
  for (std::byte* at : own_) unmap(at);
  for (const CUmemGenericAllocationHandle handle : handles_) driver_->release(handle);
}

namespace {

/// Counters begin at a whole line behind the data.
std::uint64_t* counters_of(std::byte* base, std::size_t bytes) {
  const std::size_t line = cuda::kCounterBytes;
  return reinterpret_cast<std::uint64_t*>(base + (bytes + line - 1) / line * line);
}

}  // namespace

std::uint64_t* CudaMulticast::counters() const { return counters_of(multicast_, bytes_); }
std::uint64_t* CudaMulticast::arrived(std::size_t rank) const {
  return counters_of(own_[rank], bytes_);
}
std::uint64_t* CudaMulticast::rounds(std::size_t rank) const {
  return arrived(rank) + lanes_ * (cuda::kCounterBytes / sizeof(std::uint64_t));
}

}  // namespace tutti::exec
