#include "cuda/driver/multicast.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "cuda/driver/memory.h"

namespace tutti::exec {
namespace {

constexpr auto kHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

Error unsupported(const std::string& why) {
  return {Code::kUnsupported, "multicast memory: " + why};
}

Status said(CUresult result, const std::string& what) {
  return driver_status(result, "multicast memory: " + what);
}

}  // namespace

CudaMulticast& CudaMulticast::operator=(CudaMulticast&& other) noexcept {
  std::swap(object_, other.object_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(bound_, other.bound_);
  std::swap(offered_, other.offered_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

CudaMulticast::~CudaMulticast() {
  mapping_ = {};  // Before what it stands for.
  if (bound_) cuda_driver().unbind(object_.get(), device_, 0, bytes_);
  if (offered_ != 0) segments::withdraw(offered_, 1);
}

Status CudaMulticast::supported(int device) {
  if (!cuda_driver().has_multicast) return unsupported("the CUDA driver knows of none");
  const std::string name = "device " + std::to_string(device);
  int has = 0;
  TUTTI_RETURN_IF_ERROR(
      said(cuda_driver().device_attribute(&has, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, device),
           "asking " + name));
  return has != 0 ? ok() : unsupported(name + " has none");
}

Result<CudaMulticast> CudaMulticast::make(unsigned devices, std::size_t bytes,
                                          CudaMulticastName& name) {
  const CudaDriver& driver = cuda_driver();
  CUmulticastObjectProp wanted = {};
  wanted.numDevices = devices;
  wanted.size = bytes;
  wanted.handleTypes = kHandleType;
  // The least that is enough. What the driver recommends "for best performance" is much more on
  // some devices (512 MiB), which each rank would take for however little data.
  std::size_t granule = 1;
  TUTTI_RETURN_IF_ERROR(
      said(driver.multicast_granularity(&granule, &wanted, CU_MULTICAST_GRANULARITY_MINIMUM),
           "its granules"));
  if (bytes == 0 || bytes % granule != 0)
    return unsupported(std::to_string(bytes) + " bytes; multiples of " + std::to_string(granule) +
                       " are possible");
  CudaMulticast made;
  made.bytes_ = bytes;
  CUmemGenericAllocationHandle object = 0;
  TUTTI_RETURN_IF_ERROR(said(driver.multicast_create(&object, &wanted), "making it"));
  made.object_ = CudaHandle(object);
  int descriptor = -1;
  TUTTI_RETURN_IF_ERROR(
      said(driver.export_handle(&descriptor, object, kHandleType, 0), "exporting it"));
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);  // Not for programs that this one starts.
  auto address = segments::serve();
  if (!address) {
    ::close(descriptor);
    return std::move(address.error());
  }
  made.offered_ = segments::offer({descriptor}, {bytes});
  name = {*address, made.offered_};
  return made;
}

Result<CudaMulticast> CudaMulticast::open(const CudaMulticastName& name, std::size_t bytes,
                                          Deadline deadline) {
  CudaMulticast opened;
  opened.bytes_ = bytes;
  TUTTI_TRY(const segments::Descriptor found,
            segments::fetch_descriptor({name.address}, name.id, deadline));
  CUmemGenericAllocationHandle object = 0;
  const auto fd = static_cast<std::intptr_t>(found.fd);
  const CUresult imported =
      cuda_driver().import_handle(&object, reinterpret_cast<void*>(fd), kHandleType);
  ::close(found.fd);
  TUTTI_RETURN_IF_ERROR(said(imported, "importing it"));
  opened.object_ = CudaHandle(object);
  return opened;
}

Status CudaMulticast::add(int device) {
  device_ = device;
  return said(cuda_driver().add_device(object_.get(), device),
              "adding device " + std::to_string(device));
}

Status CudaMulticast::bind(std::byte* memory) {
  const OnDevice on(device_);
  const auto at = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(memory));
  TUTTI_RETURN_IF_ERROR(said(cuda_driver().bind(object_.get(), 0, at, bytes_, 0),
                             "binding memory of device " + std::to_string(device_)));
  bound_ = true;
  return ok();
}

Status CudaMulticast::map() {
  const OnDevice on(device_);
  TUTTI_TRY(CudaMapping mapping, CudaMapping::reserve(bytes_));
  TUTTI_RETURN_IF_ERROR(mapping.add(object_.get(), bytes_));
  TUTTI_RETURN_IF_ERROR(mapping.allow({device_}));
  mapping_ = std::move(mapping);
  return ok();
}

}  // namespace tutti::exec
