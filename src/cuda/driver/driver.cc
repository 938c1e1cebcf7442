#include "cuda/driver/driver.h"

#include <array>
#include <atomic>
#include <type_traits>

#include "base/cuda_refusal.h"
#include "cuda/driver/prototypes.h"

namespace tutti::exec {
namespace {

CUdeviceptr address_of(const std::byte* at) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
}

TUTTI_CUDA_MEMORY_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)
TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)
TUTTI_CUDA_OTHER_FUNCTIONS(TUTTI_CUDA_PROTOTYPE)

CudaDriver look_up() {
  CudaDriver driver;
  bool all = true;
  const auto find = [&all](const char* name, auto& function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kCudaDriverVersion,
                                                               cudaEnableDefault, &result);
    if (error == cudaSuccess && result == cudaDriverEntryPointSuccess && found != nullptr) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
      return;
    }
    cudaGetLastError();
    all = false;
  };
#define TUTTI_CUDA_FIND(field, name, version) find(#name, driver.field);
  TUTTI_CUDA_MEMORY_FUNCTIONS(TUTTI_CUDA_FIND)
  driver.has_memory = all;
  TUTTI_CUDA_MULTICAST_FUNCTIONS(TUTTI_CUDA_FIND)
  driver.has_multicast = all;
  TUTTI_CUDA_OTHER_FUNCTIONS(TUTTI_CUDA_FIND)
#undef TUTTI_CUDA_FIND
  return driver;
}

}  // namespace

const CudaDriver& cuda_driver() {
  static const CudaDriver driver = look_up();
  return driver;
}

Status driver_status(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return ok();
  cuda_refusal = result;
  // The driver's numbers are the runtime's, which has words for them.
  return Error{Code::kSystem, what + ": " + cudaGetErrorString(static_cast<cudaError_t>(result)) +
                                  " (error " + std::to_string(result) + " of the CUDA driver)"};
}

Result<CUcontext> context_of(int device) {
  constexpr int kMostDevices = 256;
  static std::array<std::atomic<CUcontext>, kMostDevices> contexts;
  const std::string what = "using device " + std::to_string(device);
  if (device < 0 || device >= kMostDevices || cuda_driver().context == nullptr)
    return Error{Code::kUnsupported, what + ": no such device, or no CUDA driver"};
  // relaxed: a handle, which says nothing of other memory. A thread that loses the race has
  // retained the context twice.
  std::atomic<CUcontext>& known = contexts[static_cast<std::size_t>(device)];
  CUcontext context = known.load(std::memory_order_relaxed);
  if (context != nullptr) return context;
  TUTTI_RETURN_IF_ERROR(driver_status(cuda_driver().context(&context, device), what));
  known.store(context, std::memory_order_relaxed);
  return context;
}

CUmemLocation location_of(int device) {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CudaHandle CudaHandle::at(std::byte* data) {
  CUmemGenericAllocationHandle handle = 0;
  if (!cuda_driver().has_memory || cuda_driver().retain(&handle, data) != CUDA_SUCCESS) return {};
  return CudaHandle(handle);
}

void CudaMapping::Unmap::operator()(std::byte* data) const {
  CUdeviceptr at = address_of(data);
  for (const std::size_t bytes : parts) {
    cuda_driver().unmap(at, bytes);
    at += bytes;
  }
  cuda_driver().free(address_of(data), reserved);
}

Result<CudaMapping> CudaMapping::reserve(std::size_t bytes) {
  CudaMapping mapping;
  CUdeviceptr at = 0;
  TUTTI_RETURN_IF_ERROR(
      driver_status(cuda_driver().reserve(&at, bytes, 0, 0, 0),
                    "reserving addresses for " + std::to_string(bytes) + " bytes"));
  mapping.data_.reset(reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at)));
  mapping.data_.get_deleter().reserved = bytes;
  return mapping;
}

Status CudaMapping::add(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const std::string what = "mapping " + std::to_string(bytes) + " bytes of a device's memory";
  if (bytes == 0 || bytes > size() - mapped_) {
    return Error{Code::kMismatch,
                 what + ": only " + std::to_string(size() - mapped_) + " were said to be there"};
  }
  TUTTI_RETURN_IF_ERROR(
      driver_status(cuda_driver().map(address_of(data()) + mapped_, bytes, 0, handle, 0), what));
  data_.get_deleter().parts.push_back(bytes);
  mapped_ += bytes;
  return ok();
}

Status CudaMapping::allow(const std::vector<int>& devices) {
  return allow_access(data(), mapped_, devices);
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
