// File: simt/runtime_driver.cc: the driver's functions that the library uses: virtual memory,
// multicast objects, contexts, memsets and values of streams, found by their names
// (runtime_entries.cc).
//
// Model. A handle is a memfd: a device's memory, or a multicast object (runtime_multicast.h). An
// export is the memfd itself, or, in a fabric handle, its number in this process; its name says
// what it is, and which device's. A range of addresses that is mapped to a multicast object
// can't be touched (PROT_NONE); the multimem functions of prim.h look up what it stands for, in a
// table that is made anew whenever something is mapped or bound here, and never changed: looking it
// up takes no lock, which would hide races from the thread sanitizer. Members are used by their own
// addresses, so that it sees what meets there.
//
// The functions of libcuda.so.1 itself are in runtime_libcuda.cc.
#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <string_view>

#include "simt/per_thread.h"
#include "simt/runtime.h"
#include "simt/runtime_multicast.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;
constexpr std::size_t kGranularity = std::size_t{2} << 20;
constexpr const char* kMemoryName = "simt-memory-";  // A memfd's name, before its device's number.

struct Handle {
  int fd = -1;
  std::size_t bytes = 0;
  int device = 0;
  bool counted = false;                        // It was made here, and not imported.
  int shareable = 0;                           // As what it may be exported.
  std::unique_ptr<MulticastObject> multicast;  // That is one, and has the fd,
  std::map<int, Handle*> bound;                // and by device the memory that was bound here.
  int references = 1;
};
struct Mapping {
  std::size_t bytes;
  Handle* handle;
  std::size_t offset;
};
/// The memory that a multicast address stands for.
struct Window {
  std::uintptr_t begin, end;
  const char* trouble;  // Or null.
  std::vector<char*> members;
};
using Windows = std::vector<Window>;

/// The contents of a fabric handle.
struct FabricName {
  std::int32_t process, fd;
};
static_assert(sizeof(FabricName) <= sizeof(CUmemFabricHandle));

struct Driver {
  std::mutex mutex;
  std::map<std::uintptr_t, Mapping> mappings;
  std::list<Windows> published = std::list<Windows>(1);  // All that kernels may be reading.
  std::atomic<const Windows*> windows{&published.front()};
};
Driver& driver() {
  static auto& one = *new Driver;
  return one;
}

Handle* handle_of(CUmemGenericAllocationHandle handle) {
  return reinterpret_cast<Handle*>(static_cast<std::uintptr_t>(handle));
}

/// Where bytes of a memfd are mapped; null: nowhere. With the mutex held.
char* find_mapped(std::uint64_t inode, std::size_t offset, std::size_t bytes) {
  for (const auto& [base, mapping] : driver().mappings) {
    if (mapping.handle->multicast == nullptr && mapping.offset <= offset &&
        mapping.offset + mapping.bytes >= offset + bytes && inode_of(mapping.handle->fd) == inode) {
      return reinterpret_cast<char*>(base) + (offset - mapping.offset);
    }
  }
  return nullptr;
}

Window window_of(std::uintptr_t base, const Mapping& mapping) {
  Window window{base, base + mapping.bytes, nullptr, {}};
  window.trouble = mapping.handle->multicast->members(find_mapped, window.members);
  for (char*& member : window.members) member += mapping.offset;
  return window;
}

/// After something was mapped or bound. With the mutex held. Kernels may be reading the table of
/// before, which is left to them.
void publish() {
  Windows* windows = &driver().published.emplace_back();
  for (const auto& [base, mapping] : driver().mappings) {
    if (mapping.handle->multicast != nullptr) windows->push_back(window_of(base, mapping));
  }
  // release: pairs with the acquire in multicast_members.
  driver().windows.store(windows, std::memory_order_release);
}

void release_handle(Handle* handle) {
  if (--handle->references > 0) return;
  if (handle->multicast == nullptr) close(handle->fd);
  if (handle->counted) give_memory(handle->device, handle->bytes);
  for (const auto& [device, memory] : handle->bound) {
    handle->multicast->unbind(device);
    release_handle(memory);
  }
  delete handle;
}

CUresult cuMemGetAllocationGranularity(std::size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMulticastGetGranularity(std::size_t* bytes, const CUmulticastObjectProp*,
                                   CUmulticastGranularity_flags flags) {
  constexpr std::size_t kRecommended = std::size_t{512} << 20;  // As on an H100.
  *bytes = flags == CU_MULTICAST_GRANULARITY_MINIMUM ? kGranularity : kRecommended;
  return CUDA_SUCCESS;
}

/// As what memory may be exported, here (share_as).
std::atomic<unsigned> shareable_types{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
std::atomic<bool> sharing_permitted{true};

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  unsigned type = 0;
  if (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
    type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)
    type = CU_MEM_HANDLE_TYPE_FABRIC;
  if (type == 0) return ::cuDeviceGetAttribute(value, attribute, device);
  *value = (shareable_types & type) != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, std::size_t bytes,
                     const CUmemAllocationProp* wanted, unsigned long long) {
  if (bytes == 0 || bytes % kGranularity != 0 ||
      wanted->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((wanted->requestedHandleTypes & ~shareable_types) != 0 ||
      (wanted->requestedHandleTypes != 0 && !sharing_permitted)) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  if (!exists(wanted->location.id)) return CUDA_ERROR_INVALID_DEVICE;
  if (!take_memory(wanted->location.id, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto memory = std::make_unique<Handle>();
  memory->fd = make_memfd((kMemoryName + std::to_string(wanted->location.id)).c_str(), bytes);
  if (memory->fd < 0) {
    give_memory(wanted->location.id, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  memory->counted = true;
  memory->bytes = bytes;
  memory->device = wanted->location.id;
  memory->shareable = static_cast<int>(wanted->requestedHandleTypes);
  *handle = reinterpret_cast<std::uintptr_t>(memory.release());
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Lock lock(driver().mutex);
  release_handle(handle_of(handle));
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  const Handle& memory = *handle_of(handle);
  *properties = {};
  properties->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties->location.id = memory.device;
  properties->requestedHandleTypes = static_cast<CUmemAllocationHandleType>(memory.shareable);
  return CUDA_SUCCESS;
}
CUresult cuMemExportToShareableHandle(void* to, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  const Handle& memory = *handle_of(handle);
  if ((memory.shareable & type) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    const FabricName name{getpid(), memory.fd};
    std::memset(to, 0, sizeof(CUmemFabricHandle));
    std::memcpy(to, &name, sizeof name);
    return CUDA_SUCCESS;
  }
  const int fd = fcntl(memory.fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memcpy(to, &fd, sizeof fd);
  return CUDA_SUCCESS;
}
/// The descriptor stays the caller's.
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                        CUmemAllocationHandleType type) {
  if (handles_are_refused()) return CUDA_ERROR_NOT_PERMITTED;
  int fd = -1;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    FabricName name;
    std::memcpy(&name, from, sizeof name);
    fd = open_of_process(name.process, name.fd);
  } else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    fd = fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(from)), F_DUPFD_CLOEXEC, 0);
  }
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  char path[32], text[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const std::string prefix = "/memfd:";
  std::string_view name(
      text, static_cast<std::size_t>(std::max<ssize_t>(0, readlink(path, text, sizeof text - 1))));
  auto made = std::make_unique<Handle>();
  made->fd = fd;
  made->shareable = static_cast<int>(type);
  struct stat file {};
  if (name.starts_with(prefix + MulticastObject::kName)) {
    made->multicast = MulticastObject::open(fd);
    close(fd);
    if (made->multicast == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    made->fd = made->multicast->fd();
    made->bytes = made->multicast->bytes();
  } else if (name.starts_with(prefix + kMemoryName) && fstat(fd, &file) == 0) {
    made->device = std::atoi(text + prefix.size() + std::strlen(kMemoryName));
    made->bytes = static_cast<std::size_t>(file.st_size);
  } else {
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = reinterpret_cast<std::uintptr_t>(made.release());
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* at, std::size_t bytes, std::size_t, CUdeviceptr,
                             unsigned long long) {
  void* base = mmap(nullptr, bytes + kGranularity, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  const std::uintptr_t aligned = (begin + kGranularity - 1) & ~(kGranularity - 1);
  if (aligned > begin) munmap(base, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + kGranularity - aligned);
  *at = aligned;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr at, std::size_t bytes) {
  munmap(reinterpret_cast<void*>(at), bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr at, std::size_t bytes, std::size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  Handle* memory = handle_of(handle);
  if (at % kGranularity != 0 || bytes % kGranularity != 0 || offset + bytes > memory->bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (memory->multicast == nullptr &&
      mmap(reinterpret_cast<void*>(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->fd,
           static_cast<off_t>(offset)) == MAP_FAILED) {
    return CUDA_ERROR_UNKNOWN;
  }
  const Lock lock(driver().mutex);
  ++memory->references;
  driver().mappings[at] = {bytes, memory, offset};
  if (memory->multicast == nullptr)
    remember_mapping(reinterpret_cast<void*>(at), bytes, memory->device, 0);
  publish();
  return CUDA_SUCCESS;
}
/// The mapping that has the address; mappings.end(): none. With the mutex held.
auto mapping_of(std::uintptr_t at) {
  auto& mappings = driver().mappings;
  const auto next = mappings.upper_bound(at);
  if (next == mappings.begin()) return mappings.end();
  const auto found = std::prev(next);
  return at < found->first + found->second.bytes ? found : mappings.end();
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) {
  const Lock lock(driver().mutex);
  const auto found = mapping_of(reinterpret_cast<std::uintptr_t>(at));
  if (found == driver().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  ++found->second.handle->references;
  *handle = reinterpret_cast<std::uintptr_t>(found->second.handle);
  return CUDA_SUCCESS;
}
/// The range that was mapped at once, or allocated.
CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
  void* begin = nullptr;
  if (!find_memory(reinterpret_cast<void*>(at), &begin, bytes)) return CUDA_ERROR_NOT_FOUND;
  *base = reinterpret_cast<std::uintptr_t>(begin);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr at, std::size_t) {
  if (settings().unmap_waits) drain_device(this_device());
  const Lock lock(driver().mutex);
  const auto found = driver().mappings.find(at);
  if (found == driver().mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  const Mapping mapping = found->second;
  if (mapping.handle->multicast == nullptr) {
    forget_mapping(reinterpret_cast<void*>(at));
    mmap(reinterpret_cast<void*>(at), mapping.bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
  driver().mappings.erase(found);
  publish();
  release_handle(mapping.handle);
  return CUDA_SUCCESS;
}
/// For whole mappings, one or several in a row; devices that are not named keep their access.
CUresult cuMemSetAccess(CUdeviceptr at, std::size_t bytes, const CUmemAccessDesc* descriptions,
                        std::size_t count) {
  std::uint64_t devices = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (descriptions[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
      devices |= std::uint64_t{1} << descriptions[i].location.id;
    }
  }
  const Lock lock(driver().mutex);
  for (const CUdeviceptr end = at + bytes; at < end;) {
    const auto found = driver().mappings.find(at);
    if (found == driver().mappings.end() || found->second.bytes > end - at) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    at += found->second.bytes;
    const Handle& memory = *found->second.handle;
    if (memory.multicast != nullptr) continue;  // Nobody touches these addresses themselves.
    for (int device = 0; device < settings().devices; ++device) {
      const bool named = (devices >> device & 1) != 0;
      if (named && device != memory.device && !settings().peers(device, memory.device)) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
    }
    auto* base = reinterpret_cast<void*>(found->first);
    if (mprotect(base, found->second.bytes, PROT_READ | PROT_WRITE) != 0) {
      return CUDA_ERROR_UNKNOWN;
    }
    remember_mapping(base, found->second.bytes, memory.device, devices);
  }
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle,
                           const CUmulticastObjectProp* wanted) {
  if (wanted->size == 0 || wanted->size % kGranularity != 0 || wanted->numDevices == 0 ||
      wanted->numDevices > static_cast<unsigned>(kMostDevices)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if ((wanted->handleTypes & ~std::uint64_t{shareable_types}) != 0) return CUDA_ERROR_NOT_PERMITTED;
  auto made = std::make_unique<Handle>();
  made->multicast = MulticastObject::create(wanted->size, wanted->numDevices);
  if (made->multicast == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  made->fd = made->multicast->fd();
  made->bytes = wanted->size;
  made->shareable = static_cast<int>(wanted->handleTypes);
  *handle = reinterpret_cast<std::uintptr_t>(made.release());
  return CUDA_SUCCESS;
}
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return handle_of(handle)->multicast->add(device);
}
CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, std::size_t at, CUdeviceptr from,
                             std::size_t bytes, unsigned long long) {
  const Lock lock(driver().mutex);
  Handle& object = *handle_of(handle);
  const auto found = mapping_of(from);
  if (at != 0 || found == driver().mappings.end() || found->second.handle->multicast != nullptr ||
      from + bytes > found->first + found->second.bytes)
    return CUDA_ERROR_INVALID_VALUE;
  Handle& memory = *found->second.handle;
  const std::size_t offset = found->second.offset + (from - found->first);
  if (object.shareable != 0 && memory.shareable == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = object.multicast->bind(memory.device, memory.fd, offset, bytes);
  if (result != CUDA_SUCCESS) return result;
  ++memory.references;
  object.bound[memory.device] = &memory;
  publish();
  return CUDA_SUCCESS;
}
CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, std::size_t at,
                           std::size_t bytes) {
  const Lock lock(driver().mutex);
  Handle& object = *handle_of(handle);
  const auto found = object.bound.find(device);
  if (at != 0 || bytes != object.bytes || found == object.bound.end())
    return CUDA_ERROR_INVALID_VALUE;
  object.multicast->unbind(device);
  release_handle(found->second);
  object.bound.erase(found);
  publish();
  return CUDA_SUCCESS;
}

}  // namespace

void* driver_entry(std::string_view name, bool per_thread) {
#define TUTTI_SIMT_ENTRY(function) \
  if (name == #function) return reinterpret_cast<void*>(&function);
#define TUTTI_SIMT_STREAM_ENTRY(function) \
  if (name == #function)                  \
    return reinterpret_cast<void*>(       \
        per_thread ? &Signature<decltype(function)>::per_thread<function> : &function);
  TUTTI_SIMT_ENTRY(cuGetErrorString)
  TUTTI_SIMT_ENTRY(cuDeviceGet)
  TUTTI_SIMT_ENTRY(cuDeviceGetCount)
  TUTTI_SIMT_ENTRY(cuCtxSetCurrent)
  TUTTI_SIMT_ENTRY(cuCtxGetDevice)
  TUTTI_SIMT_ENTRY(cuDevicePrimaryCtxRetain)
  TUTTI_SIMT_ENTRY(cuCtxGetCurrent)
  TUTTI_SIMT_ENTRY(cuCtxPushCurrent)
  TUTTI_SIMT_ENTRY(cuCtxPopCurrent)
  TUTTI_SIMT_ENTRY(cuDeviceGetAttribute)
  TUTTI_SIMT_ENTRY(cuDeviceGetUuid)
  TUTTI_SIMT_ENTRY(cuMemGetAllocationGranularity)
  TUTTI_SIMT_ENTRY(cuMemCreate)
  TUTTI_SIMT_ENTRY(cuMemRelease)
  TUTTI_SIMT_ENTRY(cuMemAddressReserve)
  TUTTI_SIMT_ENTRY(cuMemAddressFree)
  TUTTI_SIMT_ENTRY(cuMemMap)
  TUTTI_SIMT_ENTRY(cuMemUnmap)
  TUTTI_SIMT_ENTRY(cuMemSetAccess)
  TUTTI_SIMT_ENTRY(cuMemGetAddressRange)
  TUTTI_SIMT_ENTRY(cuPointerGetAttribute)
  TUTTI_SIMT_ENTRY(cuMemGetHandleForAddressRange)
  TUTTI_SIMT_ENTRY(cuMemGetAllocationPropertiesFromHandle)
  TUTTI_SIMT_ENTRY(cuMemRetainAllocationHandle)
  TUTTI_SIMT_ENTRY(cuMemExportToShareableHandle)
  TUTTI_SIMT_ENTRY(cuMemImportFromShareableHandle)
  TUTTI_SIMT_ENTRY(cuMulticastCreate)
  TUTTI_SIMT_ENTRY(cuMulticastGetGranularity)
  TUTTI_SIMT_ENTRY(cuMulticastAddDevice)
  TUTTI_SIMT_ENTRY(cuMulticastBindAddr)
  TUTTI_SIMT_ENTRY(cuMulticastUnbind)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD8)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD8Async)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D8)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D8Async)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD16)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD16Async)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D16)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D16Async)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD32)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD32Async)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D32)
  TUTTI_SIMT_STREAM_ENTRY(cuMemsetD2D32Async)
  TUTTI_SIMT_STREAM_ENTRY(cuStreamWriteValue32)
  TUTTI_SIMT_STREAM_ENTRY(cuStreamWriteValue64)
  TUTTI_SIMT_STREAM_ENTRY(cuStreamWaitValue64)
#undef TUTTI_SIMT_STREAM_ENTRY
#undef TUTTI_SIMT_ENTRY
  return nullptr;
}

void share_as(unsigned types, bool permitted) {
  shareable_types = types;
  sharing_permitted = permitted;
}

Members multicast_members(const void* at, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  // acquire: pairs with the release in publish.
  for (const Window& window : *driver().windows.load(std::memory_order_acquire)) {
    if (address < window.begin || address + bytes > window.end) continue;
    if (window.trouble != nullptr) die("multicast memory at %p: %s", at, window.trouble);
    if (address % bytes != 0) die("multicast memory at %p: not aligned to %zu bytes", at, bytes);
    Members members = {};
    for (char* member : window.members) {
      members.at[members.count++] = member + (address - window.begin);
    }
    return members;
  }
  die("%p is not in multicast memory", at);
}

}  // namespace tutti::simt
