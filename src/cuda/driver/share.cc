#include "cuda/driver/share.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <string>

#include "cuda/driver/memory.h"
#include "transport/transport.h"

namespace tutti::exec {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 46;
constexpr std::uint32_t kMostParts = 1U << 16;

CUdeviceptr address_of(const std::byte* at) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(at));
}
std::byte* pointer_of(CUdeviceptr at) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(at));
}

Error unsupported(const std::string& what) { return {Code::kUnsupported, what}; }
std::string exporting(int device) { return "exporting memory of device " + std::to_string(device); }

/// The driver counts how often a process has the memory of a handle open, but refuses a thread
/// (cudaErrorAlreadyMapped) while another one is opening it: seen with driver 580.159 on an H100 in
/// 30 to 40 % of the calls of two threads. Ranks that are threads open the same peer's memory.
std::mutex& opening() {
  static std::mutex mutex;
  return mutex;
}

/// Where the allocation, or the mapping, that has the address begins, and its bytes.
Status range_of(std::byte* data, std::byte*& base, std::size_t& bytes) {
  CUdeviceptr begin = 0;
  const CUresult result = cuda_driver().address_range(&begin, &bytes, address_of(data));
  if (result == CUDA_ERROR_NOT_FOUND) {
    return Error{Code::kInvalidArgument,
                 "the driver knows no memory of a device at that address, or no device may access "
                 "it yet (cuMemSetAccess)"};
  }
  TUTTI_RETURN_IF_ERROR(driver_status(result, "asking where a device's memory begins"));
  base = pointer_of(begin);
  return ok();
}

/// Whether a device of this process may access the memory of another one.
Status check_reach(int device, int owner) {
  if (device == owner) return ok();
  int can = 0;
  const std::string what = "access from device " + std::to_string(device) +
                           " to the memory of device " + std::to_string(owner);
  TUTTI_RETURN_IF_ERROR(cuda_status(cudaDeviceCanAccessPeer(&can, device, owner), what));
  return can != 0 ? ok() : unsupported("no " + what);
}

/// Memory of this process.
Status let_in(int device, const CudaName& name) {
  TUTTI_RETURN_IF_ERROR(check_reach(device, name.device));
  if (name.parts > 0) return allow_access(name.data - name.offset, name.whole_bytes, {device});
  return enable_peer_access(device, name.device);
}

}  // namespace

Status enable_peer_access(int device, int peer) {
  if (device == peer) return ok();
  TUTTI_RETURN_IF_ERROR(check_reach(device, peer));
  const OnDevice on(device);
  const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
  if (error != cudaErrorPeerAccessAlreadyEnabled) {
    return cuda_status(error, "access from device " + std::to_string(device) +
                                  " to the memory of device " + std::to_string(peer));
  }
  cudaGetLastError();
  return ok();
}

CudaExport::~CudaExport() {
  if (name_.kind == CudaHandleKind::kDescriptors) segments::withdraw(name_.first, name_.parts);
}

Result<CudaExport> CudaExport::of(int device, std::byte* data, std::size_t bytes) {
  const OnDevice on(device);
  CudaExport made;
  CudaName& name = made.name_;
  const Peer self = this_process();
  std::copy_n(self.process, std::size(self.process), name.process);
  name.data = data;
  name.device = device;
  if (bytes > kMostBytes)
    return Error{Code::kInvalidArgument, exporting(device) + ": more than 2^46 bytes"};
  const CudaHandle handle = CudaHandle::at(data);
  if (!handle.there()) {
    TUTTI_RETURN_IF_ERROR(made.name_allocated(bytes));
    return made;
  }
  CUmemAllocationProp properties = {};
  TUTTI_RETURN_IF_ERROR(driver_status(cuda_driver().properties(&properties, handle.get()),
                                      "asking how memory was made"));
  std::byte* base = nullptr;
  std::size_t part = 0;
  TUTTI_RETURN_IF_ERROR(range_of(data, base, part));
  name.offset = static_cast<std::size_t>(data - base);
  const std::size_t needed = name.offset + bytes;
  const unsigned types = static_cast<unsigned>(properties.requestedHandleTypes);
  const bool descriptors = (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  TUTTI_RETURN_IF_ERROR(made.add_parts(
      base, needed,
      descriptors ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE));
  if (descriptors || (types & CU_MEM_HANDLE_TYPE_FABRIC) == 0 || name.parts != 1) return made;
  TUTTI_RETURN_IF_ERROR(driver_status(
      cuda_driver().export_handle(&name.handle.fabric, handle.get(), CU_MEM_HANDLE_TYPE_FABRIC, 0),
      exporting(device)));
  name.kind = CudaHandleKind::kFabric;
  return made;
}

/// For memory that the driver did not map.
Status CudaExport::name_allocated(std::size_t bytes) {
  std::byte* base = name_.data;  // Where what was allocated begins: an IPC handle is of all of it.
  if (cuda_driver().has_memory) {
    TUTTI_RETURN_IF_ERROR(range_of(name_.data, base, name_.whole_bytes));
    name_.offset = static_cast<std::size_t>(name_.data - base);
    if (bytes > name_.whole_bytes - name_.offset) {
      return Error{Code::kInvalidArgument, exporting(name_.device) + ": " + std::to_string(bytes) +
                                               " bytes, of which " +
                                               std::to_string(name_.whole_bytes - name_.offset) +
                                               " were allocated at once"};
    }
    // A peer's access to a device, or a handle, is to all but that of pools.
    void* pool = nullptr;
    if (cuda_driver().pointer_attribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                        address_of(name_.data)) == CUDA_SUCCESS &&
        pool != nullptr) {
      return unsupported(exporting(name_.device) +
                         ": it is a pool's (cudaMallocAsync); take cudaMalloc's instead");
    }
  }  // Else it is what was allocated.
  if (succeeds(cudaIpcGetMemHandle(&name_.handle.ipc, base))) name_.kind = CudaHandleKind::kIpc;
  return ok();
}

/// Counts what is mapped from `base` on, up to `bytes` and to the end of a mapping, and has others
/// get at it, if `type` says how.
Status CudaExport::add_parts(std::byte* base, std::size_t bytes, CUmemAllocationHandleType type) {
  const std::string what = exporting(name_.device);
  std::vector<int> descriptors;
  std::vector<std::size_t> sizes;
  Status status = ok();
  while (status && name_.whole_bytes < bytes) {
    const CudaHandle handle = CudaHandle::at(base + name_.whole_bytes);
    std::byte* begin = nullptr;
    std::size_t part = 0;
    status = range_of(base + name_.whole_bytes, begin, part);
    if (status && (!handle.there() || begin != base + name_.whole_bytes || part == 0 ||
                   name_.parts == kMostParts)) {
      status = unsupported(what + ": it is not mapped in one row of at most " +
                           std::to_string(kMostParts) + " parts");
    }
    if (!status) break;
    ++name_.parts;
    name_.whole_bytes += part;
    if (type == CU_MEM_HANDLE_TYPE_NONE) continue;
    int descriptor = -1;
    status = driver_status(cuda_driver().export_handle(&descriptor, handle.get(), type, 0), what);
    if (!status) break;
    // Not for programs that this one starts.
    fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    descriptors.push_back(descriptor);
    sizes.push_back(part);
  }
  if (status && type != CU_MEM_HANDLE_TYPE_NONE) {
    auto address = segments::serve();
    if (!address) status = std::move(address.error());
    if (status) name_.address = *address;
  }
  if (!status) {
    for (const int descriptor : descriptors) ::close(descriptor);
    return status;
  }
  if (descriptors.empty()) return ok();
  name_.first = segments::offer(descriptors, sizes);
  name_.kind = CudaHandleKind::kDescriptors;
  return ok();
}

void CudaImport::Close::operator()(void* ipc) const {
  const OnDevice on(device);
  const std::scoped_lock lock(opening());
  cudaIpcCloseMemHandle(ipc);
}

Result<CudaImport> CudaImport::open(int device, const CudaName& name, Deadline deadline) {
  CudaImport opened;
  const Peer self = this_process();
  if (std::equal(std::begin(name.process), std::end(name.process), self.process)) {
    TUTTI_RETURN_IF_ERROR(let_in(device, name));
    opened.data_ = name.data;
    return opened;
  }
  if (name.offset > kMostBytes || name.whole_bytes > kMostBytes || name.parts > kMostParts ||
      (name.parts > 0 && name.offset >= name.whole_bytes)) {
    return Error{Code::kMismatch, "a name of a device's memory makes no sense"};
  }
  const OnDevice on(device);
  if (name.kind == CudaHandleKind::kIpc) {
    void* ipc = nullptr;
    const std::scoped_lock lock(opening());
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaIpcOpenMemHandle(&ipc, name.handle.ipc, cudaIpcMemLazyEnablePeerAccess),
                    "opening an IPC handle"));
    opened.ipc_ = {ipc, Close{device}};
    opened.data_ = static_cast<std::byte*>(ipc) + name.offset;
    return opened;
  }
  if (name.kind == CudaHandleKind::kNone || !cuda_driver().has_memory) {
    return unsupported(name.kind == CudaHandleKind::kNone
                           ? "its device exports no memory"
                           : "this CUDA driver imports no memory that another mapped");
  }
  TUTTI_RETURN_IF_ERROR(opened.open_parts(device, name, deadline));
  opened.data_ = opened.mapping_.data() + name.offset;
  return opened;
}

Status CudaImport::open_parts(int device, const CudaName& name, Deadline deadline) {
  TUTTI_TRY(mapping_, CudaMapping::reserve(name.whole_bytes));
  if (name.kind == CudaHandleKind::kFabric) {
    CUmemFabricHandle fabric = name.handle.fabric;
    TUTTI_RETURN_IF_ERROR(add(&fabric, CU_MEM_HANDLE_TYPE_FABRIC, name.whole_bytes));
    return mapping_.allow({device});
  }
  for (std::uint32_t part = 0; part < name.parts; ++part) {
    TUTTI_TRY(const segments::Descriptor found,
              segments::fetch_descriptor({name.address}, name.first + part, deadline));
    const auto fd = static_cast<std::intptr_t>(found.fd);
    Status added =
        add(reinterpret_cast<void*>(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, found.bytes);
    ::close(found.fd);
    if (!added) return added;
  }
  return mapping_.allow({device});
}

Status CudaImport::add(void* shared, CUmemAllocationHandleType type, std::size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  TUTTI_RETURN_IF_ERROR(driver_status(cuda_driver().import_handle(&handle, shared, type),
                                      "importing memory of another process"));
  const CudaHandle owned(handle);
  return mapping_.add(handle, bytes);
}

}  // namespace tutti::exec
