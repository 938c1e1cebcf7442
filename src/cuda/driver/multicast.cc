#include "cuda/driver/multicast.h"

#include <algorithm>
#include <set>
#include <string>

#include "cuda/driver/memory.h"
#include "kernels/cuda/fused.h"

namespace tutti::exec {
namespace {

Error unsupported(const std::string& why) {
  return {Code::kUnsupported, "multicast memory: " + why};
}

Status said(CUresult result, const std::string& what) {
  return driver_status(result, "multicast memory: " + what);
}

}  // namespace

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
  if (!cuda_driver().has_multicast) return unsupported("the CUDA driver knows of none");
  for (const int device : memory->devices_) {
    int supported = 0;
    TUTTI_RETURN_IF_ERROR(said(
        cuda_driver().device_attribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device),
        "asking device " + std::to_string(device)));
    if (supported == 0) return unsupported("device " + std::to_string(device) + " has none");
  }
  TUTTI_RETURN_IF_ERROR(memory->allocate());
  return memory;
}

/// Where all devices may access it.
Result<CudaMapping> CudaMulticast::map(CUmemGenericAllocationHandle handle) const {
  TUTTI_TRY(CudaMapping mapping, CudaMapping::reserve(whole_));
  TUTTI_RETURN_IF_ERROR(mapping.add(handle, whole_));
  TUTTI_RETURN_IF_ERROR(mapping.allow(devices_));
  return mapping;
}

Status CudaMulticast::allocate() {
  const CudaDriver& driver = cuda_driver();
  CUmulticastObjectProp object = {};
  object.numDevices = static_cast<unsigned>(devices_.size());
  const std::size_t counters = lanes_ * (cuda::kCounterBytes + sizeof(std::uint64_t));
  const std::size_t data =
      (bytes_ + cuda::kCounterBytes - 1) / cuda::kCounterBytes * cuda::kCounterBytes;
  object.size = data + counters;
  // The least that is enough, for the object and for the memory that is bound to it. What the
  // driver recommends "for best performance" is much more on some devices (512 MiB), which each
  // rank would take for however little data.
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = location_of(devices_[0]);
  std::size_t granule = 1, of_memory = 1;
  TUTTI_RETURN_IF_ERROR(
      said(driver.multicast_granularity(&granule, &object, CU_MULTICAST_GRANULARITY_MINIMUM),
           "its granules"));
  TUTTI_RETURN_IF_ERROR(
      said(driver.memory_granularity(&of_memory, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
           "granules of memory"));
  granule = std::max(granule, of_memory);  // Both are powers of two.
  whole_ = object.size = (object.size + granule - 1) / granule * granule;
  CUmemGenericAllocationHandle multicast = 0;
  TUTTI_RETURN_IF_ERROR(said(driver.multicast_create(&multicast, &object), "making it"));
  handles_.push_back(multicast);
  for (const int device : devices_) {
    TUTTI_RETURN_IF_ERROR(
        said(driver.add_device(multicast, device), "adding device " + std::to_string(device)));
  }
  own_.resize(devices_.size());
  for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
    const std::string where = "memory of device " + std::to_string(devices_[rank]);
    wanted.location = location_of(devices_[rank]);
    CUmemGenericAllocationHandle handle = 0;
    TUTTI_RETURN_IF_ERROR(said(driver.create(&handle, whole_, &wanted, 0), where));
    handles_.push_back(handle);
    TUTTI_RETURN_IF_ERROR(said(driver.bind(multicast, 0, handle, 0, whole_, 0), where));
    TUTTI_TRY(own_[rank], map(handle));
    const OnDevice on(devices_[rank]);
    TUTTI_RETURN_IF_ERROR(clear_memory(devices_[rank], own_[rank].data(), whole_, where));
  }
  TUTTI_TRY(multicast_, map(multicast));
  return ok();
}

CudaMulticast::~CudaMulticast() {
  multicast_ = {};  // Before what it stands for.
  own_.clear();
  for (const CUmemGenericAllocationHandle handle : handles_) cuda_driver().release(handle);
}

namespace {

/// Counters begin at a whole line behind the data.
std::uint64_t* counters_of(std::byte* base, std::size_t bytes) {
  const std::size_t line = cuda::kCounterBytes;
  return reinterpret_cast<std::uint64_t*>(base + (bytes + line - 1) / line * line);
}

}  // namespace

std::uint64_t* CudaMulticast::counters() const { return counters_of(multicast(), bytes_); }
std::uint64_t* CudaMulticast::arrived(std::size_t rank) const {
  return counters_of(data(rank), bytes_);
}
std::uint64_t* CudaMulticast::rounds(std::size_t rank) const {
  return arrived(rank) + lanes_ * (cuda::kCounterBytes / sizeof(std::uint64_t));
}

}  // namespace tutti::exec
