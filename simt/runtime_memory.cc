// File: simt/runtime_memory.cc: memory of devices and hosts, copies, and IPC handles.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "simt/machine.h"
#include "simt/runtime.h"

#if defined(TUTTI_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#endif

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr std::size_t kPage = 4096;
constexpr int kFreshMemory = 0xC9;
constexpr std::size_t kDeviceBytes = std::size_t{8} << 30;

std::atomic<bool> handles_refused{false};
std::atomic<int> freed_open{0};  // relaxed: a count.

struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Allocation> by_address;
  bool peer_access[kMostDevices][kMostDevices] = {};
  std::size_t used[kMostDevices] = {};
  std::set<std::pair<int, int>> opening;  // Processes and descriptors that a thread is opening.

  /// The allocation that has all of the bytes. With the mutex held.
  const Allocation* find(const void* at, std::size_t bytes = 1) const {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    auto next = by_address.upper_bound(address);
    if (next == by_address.begin()) return nullptr;
    const auto& [base, allocation] = *--next;
    return address + bytes <= base + allocation.bytes ? &allocation : nullptr;
  }
  /// What a device of this process has open by a handle; null: it has not. With the mutex held.
  Allocation* find_opened(std::uint64_t inode, int importer) {
    for (auto& [base, allocation] : by_address) {
      if (allocation.kind == MemoryKind::kIpc && allocation.inode == inode &&
          allocation.importer == importer)
        return &allocation;
    }
    return nullptr;
  }
  void add(const Allocation& allocation) {
    by_address[reinterpret_cast<std::uintptr_t>(allocation.base)] = allocation;
  }
};
Memory& memory() {
  static auto& one = *new Memory;  // Streams may use it until the process ends.
  return one;
}

/// Forgets the allocation that begins there, if it is of that kind. With the mutex held.
std::optional<Allocation> forget(void* at, MemoryKind kind) {
  auto& known = memory().by_address;
  const auto found = known.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == known.end() || found->second.kind != kind) return std::nullopt;
  const Allocation allocation = found->second;
  known.erase(found);
  return allocation;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

/// Also while streams are captured.
cudaError_t map_device(void** at, std::size_t bytes, MemoryKind kind, int device) {
  const std::size_t mapped = whole_pages(bytes);
  if (!take_memory(device, mapped)) return failed(cudaErrorMemoryAllocation);
  const int fd = make_memfd("simt-device", mapped);
  // A page behind it that nobody may touch.
  void* place =
      mmap(nullptr, mapped + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fd < 0 || place == MAP_FAILED ||
      mmap(place, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    if (fd >= 0) close(fd);
    give_memory(device, mapped);
    return failed(cudaErrorMemoryAllocation);
  }
  auto* base = static_cast<char*>(place);
  constexpr std::size_t kMostFilled = std::size_t{16} << 20;
  if (mapped <= kMostFilled) std::memset(base, kFreshMemory, mapped);
  ASAN_POISON_MEMORY_REGION(base + bytes, mapped - bytes);
  const Lock lock(memory().mutex);
  memory().add({base, bytes, mapped, device, kind, fd, -1, 0});
  *at = base;
  return cudaSuccess;
}

cudaError_t allocate_device(void** at, std::size_t bytes, MemoryKind kind, int device) {
  *at = nullptr;
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  return bytes == 0 ? cudaSuccess : map_device(at, bytes, kind, device);
}

cudaError_t allocate_host(void** at, std::size_t bytes) {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  const std::size_t mapped = whole_pages(bytes);
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
  const Lock lock(memory().mutex);
  memory().add(
      {static_cast<char*>(base), bytes, mapped, this_device(), MemoryKind::kHost, -1, -1, 0});
  *at = base;
  return cudaSuccess;
}

cudaError_t release(void* at, MemoryKind kind) {
  if (at == nullptr) return cudaSuccess;
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  const bool of_pool = kind == MemoryKind::kDevice && is_of_pool(at);
  // Running kernels may use it.
  if (!of_pool) stop_device(this_device(), "to free memory, the host waits for its device");
  const Lock lock(memory().mutex);
  const auto allocation = forget(at, of_pool ? MemoryKind::kPool : kind);
  if (!allocation) return failed(cudaErrorInvalidValue);
  ASAN_UNPOISON_MEMORY_REGION(allocation->base, allocation->mapped_bytes);
  const bool device = kind == MemoryKind::kDevice;
  munmap(allocation->base, allocation->mapped_bytes + (device ? kPage : 0));
  // A process that has it open holds a lock.
  if (device && flock(allocation->fd, LOCK_EX | LOCK_NB) != 0)
    freed_open.fetch_add(1, std::memory_order_relaxed);
  if (allocation->fd >= 0) close(allocation->fd);
  if (device) memory().used[allocation->device] -= allocation->mapped_bytes;
  return cudaSuccess;
}

bool is_device(MemoryKind kind) {
  return kind != MemoryKind::kHost && kind != MemoryKind::kRegistered;
}

/// The contents of an IPC handle.
struct Handle {
  std::uint32_t magic;
  std::int32_t process, fd, device;
  std::uint64_t bytes, mapped_bytes;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));
constexpr std::uint32_t kMemoryHandle = 0x51337a11, kEventHandle = 0x51337a12;

template <class Opaque>
void write_handle(Opaque* to, const Handle& handle) {
  std::memset(to, 0, sizeof *to);
  std::memcpy(to, &handle, sizeof handle);
}
template <class Opaque>
Handle read_handle(const Opaque& from) {
  Handle handle;
  std::memcpy(&handle, &from, sizeof handle);
  return handle;
}

/// The memory of a handle, opened for this device; null: it can't be mapped. Memory that the device
/// has open already stays where it is, and counts how often it is open.
void* map_exported(const Handle& handle) {
  const int fd = open_of_process(handle.process, handle.fd);
  struct stat about = {};
  if (fd < 0 || fstat(fd, &about) != 0) {
    if (fd >= 0) close(fd);
    return nullptr;
  }
  const Lock lock(memory().mutex);
  if (Allocation* const open = memory().find_opened(about.st_ino, this_device())) {
    close(fd);
    ++open->opened;
    return open->base;
  }
  void* base = MAP_FAILED;
  if (flock(fd, LOCK_SH) == 0)
    base = mmap(nullptr, handle.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  memory().add({static_cast<char*>(base), handle.bytes, handle.mapped_bytes, handle.device,
                MemoryKind::kIpc, fd, this_device(), 0, about.st_ino, 1});
  return base;
}

}  // namespace

/// A range that begins in an allocation has to end in it, or in memory that was mapped right behind
/// it.
bool within(const void* at, std::size_t bytes) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  const char* const end = static_cast<const char*>(at) + bytes;
  while (found != nullptr && end > found->base + found->bytes) {
    if (found->kind != MemoryKind::kMapped) return false;
    found = memory().find(found->base + found->bytes);
    if (found == nullptr) return false;
  }
  return true;
}

int make_memfd(const char* name, std::size_t bytes) {
  const int fd = static_cast<int>(syscall(SYS_memfd_create, name, MFD_CLOEXEC));
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

void refuse_handles(bool refuse) { handles_refused = refuse; }
bool handles_are_refused() { return handles_refused; }
int freed_while_open() { return freed_open.load(std::memory_order_relaxed); }

int open_of_process(int process, int fd) {
  if (handles_refused) return -1;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", process, fd);
  return open(path, O_RDWR | O_CLOEXEC);
}

bool is_of_pool(const void* at) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  return found != nullptr && found->kind == MemoryKind::kPool;
}

bool is_host(const void* at) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  return found == nullptr || !is_device(found->kind);
}
bool is_pageable(const void* at) {
  const Lock lock(memory().mutex);
  return memory().find(at) == nullptr;
}

bool allocate_variable(void** at, std::size_t bytes, int device) {
  return map_device(at, bytes, MemoryKind::kDevice, device) == cudaSuccess;
}

cudaError_t allocate_of_pool(void** at, std::size_t bytes, cudaStream_t handle) {
  TUTTI_SIMT_FIND(stream, handle);
  return allocate_device(at, bytes, MemoryKind::kPool, stream->device);
}

bool take_memory(int device, std::size_t bytes) {
  const Lock lock(memory().mutex);
  std::size_t& used = memory().used[device];
  if (bytes > kDeviceBytes - used) return false;
  used += bytes;
  return true;
}
void give_memory(int device, std::size_t bytes) {
  const Lock lock(memory().mutex);
  memory().used[device] -= bytes;
}

void remember_mapping(void* base, std::size_t bytes, int device, std::uint64_t accessors) {
  const Lock lock(memory().mutex);
  auto& known = memory().by_address[reinterpret_cast<std::uintptr_t>(base)];
  known = {static_cast<char*>(base), bytes, bytes, device,
           MemoryKind::kMapped,      -1,    -1,    known.accessors | accessors};
}
bool find_memory(const void* at, void** base, std::size_t* bytes) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  if (found == nullptr || !is_device(found->kind)) return false;
  // A driver (580.159) does not know memory that is mapped until a device may access it.
  if (found->kind == MemoryKind::kMapped && found->accessors == 0) return false;
  *base = found->base;
  *bytes = found->bytes;
  return true;
}
int export_range(const void* at, std::size_t bytes) {
  const Lock lock(memory().mutex);
  const Allocation* const found = memory().find(at, bytes);
  constexpr std::size_t kDevicePage = std::size_t{64} << 10;
  const bool whole =
      reinterpret_cast<std::uintptr_t>(at) % kDevicePage == 0 && bytes % kDevicePage == 0;
  if (found == nullptr || found->kind != MemoryKind::kDevice || !whole || bytes == 0) return -1;
  return fcntl(found->fd, F_DUPFD_CLOEXEC, 0);
}

void forget_mapping(void* base) {
  const Lock lock(memory().mutex);
  memory().by_address.erase(reinterpret_cast<std::uintptr_t>(base));
}

Owner owner_of(const void* at, std::size_t bytes, int device) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at, bytes);
  if (found == nullptr) return {device, true};  // Stacks, shared memory.
  switch (found->kind) {
    case MemoryKind::kHost:
    case MemoryKind::kRegistered: return {-1, true};
    case MemoryKind::kIpc: return {found->device, found->importer == device};
    case MemoryKind::kPool: return {found->device, found->device == device};
    case MemoryKind::kMapped: return {found->device, (found->accessors >> device & 1) != 0};
    case MemoryKind::kDevice: break;
  }
  return {found->device, found->device == device || memory().peer_access[device][found->device]};
}

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaMalloc(void** at, std::size_t bytes) {
  return allocate_device(at, bytes, MemoryKind::kDevice, this_device());
}
cudaError_t cudaFree(void* at) { return release(at, MemoryKind::kDevice); }
cudaError_t cudaMallocHost(void** at, std::size_t bytes) { return allocate_host(at, bytes); }
cudaError_t cudaHostAlloc(void** at, std::size_t bytes, unsigned) {
  return allocate_host(at, bytes);
}
cudaError_t cudaFreeHost(void* at) { return release(at, MemoryKind::kHost); }
cudaError_t cudaHostRegister(void* at, std::size_t bytes, unsigned) {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  const Lock lock(memory().mutex);
  if (memory().find(at) != nullptr) return failed(cudaErrorHostMemoryAlreadyRegistered);
  memory().add(
      {static_cast<char*>(at), bytes, bytes, this_device(), MemoryKind::kRegistered, -1, -1, 0});
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* at) {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  stop_device(this_device(), "to unregister memory, the host waits for its device");
  const Lock lock(memory().mutex);
  return forget(at, MemoryKind::kRegistered) ? cudaSuccess
                                             : failed(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* at, unsigned) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  if (found == nullptr || is_device(found->kind)) return failed(cudaErrorInvalidValue);
  *device_pointer = at;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  *attributes = {};
  attributes->device = -2;
  attributes->type = cudaMemoryTypeUnregistered;
  attributes->hostPointer = const_cast<void*>(at);
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  if (found == nullptr) return cudaSuccess;
  attributes->device = found->device;
  attributes->devicePointer = const_cast<void*>(at);
  attributes->type = is_device(found->kind) ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  if (is_device(found->kind)) attributes->hostPointer = nullptr;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total) {
  const Lock lock(memory().mutex);
  *total = kDeviceBytes;
  *available = kDeviceBytes - memory().used[this_device()];
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) return failed(cudaErrorInvalidDevice);
  *can = device != peer && settings().peers(device, peer) ? 1 : 0;
  return cudaSuccess;
}
/// The more NVLinks join just the two, the better; CUDA does not say what its ranks stand for.
static int performance_rank(int device, int peer, bool atomics) {
  constexpr int kWorst = 100;
  int links = 0;
  for (const auto& link : nvml_gpu(device).links) links += link.bus == nvml_gpu(peer).bus ? 1 : 0;
  return atomics ? kWorst - 1 - links : kWorst;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int device,
                                      int peer) {
  if (!exists(device) || !exists(peer) || device == peer) return failed(cudaErrorInvalidDevice);
  const bool access = settings().peers(device, peer);
  const bool atomics = cuda_gpu(device).atomics[static_cast<std::size_t>(peer)] == 1;
  switch (attribute) {
    case cudaDevP2PAttrPerformanceRank: *value = performance_rank(device, peer, atomics); break;
    case cudaDevP2PAttrNativeAtomicSupported: *value = access && atomics ? 1 : 0; break;
    default: *value = access ? 1 : 0;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (!exists(peer) || peer == this_device()) return failed(cudaErrorInvalidDevice);
  if (!settings().peers(this_device(), peer)) return failed(cudaErrorPeerAccessUnsupported);
  const Lock lock(memory().mutex);
  bool& access = memory().peer_access[this_device()][peer];
  if (access) return failed(cudaErrorPeerAccessAlreadyEnabled);
  access = true;
  return cudaSuccess;
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  if (!exists(peer)) return failed(cudaErrorInvalidDevice);
  const Lock lock(memory().mutex);
  bool& access = memory().peer_access[this_device()][peer];
  if (!access) return failed(cudaErrorPeerAccessNotEnabled);
  access = false;
  return cudaSuccess;
}

// IPC: a handle names a file descriptor of a process, which the other one opens anew.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
  const Lock lock(memory().mutex);
  const Allocation* found = memory().find(at);
  // A driver may take any address in an allocation; what is documented is its first.
  if (found == nullptr || found->kind != MemoryKind::kDevice || found->base != at)
    return failed(cudaErrorInvalidValue);
  write_handle(handle, {kMemoryHandle, getpid(), found->fd, found->device, found->bytes,
                        found->mapped_bytes});
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t from, unsigned) {
  const Handle handle = read_handle(from);
  if (handle.magic != kMemoryHandle) return failed(cudaErrorInvalidValue);
  if (handle.process == getpid()) return failed(cudaErrorDeviceUninitialized);
  if (!settings().peers(this_device(), handle.device))
    return failed(cudaErrorPeerAccessUnsupported);
  {
    const Lock lock(memory().mutex);
    // A driver (580.159) refuses a thread while another one is opening the same memory: with two
    // threads 30 to 40 % of the calls.
    if (!memory().opening.insert({handle.process, handle.fd}).second)
      return failed(cudaErrorAlreadyMapped);
  }
  *at = map_exported(handle);
  const Lock lock(memory().mutex);
  memory().opening.erase({handle.process, handle.fd});
  return *at != nullptr ? cudaSuccess : failed(cudaErrorMapBufferObjectFailed);
}
cudaError_t cudaIpcCloseMemHandle(void* at) {
  const Lock lock(memory().mutex);
  const auto found = memory().by_address.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == memory().by_address.end() || found->second.kind != MemoryKind::kIpc)
    return failed(cudaErrorInvalidValue);
  if (--found->second.opened > 0) return cudaSuccess;
  munmap(at, found->second.mapped_bytes);
  close(found->second.fd);
  memory().by_address.erase(found);
  return cudaSuccess;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t of) {
  TUTTI_SIMT_FIND_EVENT(event, of);
  if (event->shared == nullptr) return failed(cudaErrorInvalidResourceHandle);
  write_handle(handle, {kEventHandle, getpid(), event->fd, event->device, 0, 0});
  return cudaSuccess;
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* opened, cudaIpcEventHandle_t from) {
  const Handle handle = read_handle(from);
  if (handle.magic != kEventHandle) return failed(cudaErrorInvalidValue);
  auto event = std::make_shared<CUevent_st>();
  event->flags = cudaEventInterprocess | cudaEventDisableTiming;
  event->device = handle.device;
  if (!event->share(open_of_process(handle.process, handle.fd)))
    return failed(cudaErrorMapBufferObjectFailed);
  *opened = event_handle(std::move(event));
  return cudaSuccess;
}

}  // extern "C"
