#include "cuda/driver/memory.h"

#include <cstring>
#include <map>
#include <mutex>

#include "base/cuda_refusal.h"

namespace tutti::exec {
namespace {

/// The stream of a device for copies and the like that are done at once, made when the process
/// first touches memory there: before any kernel of ours runs. It is kept. The driver deals streams
/// to a few queues, and a stream that was made later could stand behind a kernel that waits for
/// this very rank. It has the highest priority, as streams of other priorities have other queues.
Result<cudaStream_t> utility_stream(int device) {
  static std::mutex mutex;
  static auto& streams = *new std::map<int, cudaStream_t>();  // Guarded by mutex; never destroyed.
  const std::lock_guard lock(mutex);
  const auto [found, fresh] = streams.try_emplace(device);
  if (!fresh) return found->second;
  int least = 0, greatest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (error == cudaSuccess)
    error = cudaStreamCreateWithPriority(&found->second, cudaStreamNonBlocking, greatest);
  if (error == cudaSuccess) return found->second;
  streams.erase(found);
  return cuda_status(error, "making a stream of device " + std::to_string(device)).error();
}

Status copy_at_once(int device, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                    const std::string& what) {
  return do_at_once(device, what, [=](cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, kind, stream);
  });
}

}  // namespace

Status cuda_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return ok();
  cudaGetLastError();  // It is said here; the next call is not to find it again.
  cuda_refusal = error;
  const std::string text = cudaGetErrorString(error), name = cudaGetErrorName(error);
  // Some runtimes have no other text than the name.
  return Error{Code::kSystem, what + ": " + text + (text == name ? "" : " (" + name + ")")};
}

OnDevice::OnDevice(int device) {
  const auto context = context_of(device);
  if (!context) return;  // `fill_device_info` has reported it before anything is on the device.
  CUcontext current = nullptr;
  if (cuda_driver().current(&current) == CUDA_SUCCESS && current == *context) return;
  pushed_ = cuda_driver().push(*context) == CUDA_SUCCESS;
}
OnDevice::~OnDevice() {
  CUcontext context = nullptr;
  if (pushed_) cuda_driver().pop(&context);
}

void CudaMemory::Free::operator()(std::byte* data) {
  const OnDevice on(device);
  if (mapping.data() == nullptr) cudaFree(data);
  mapping = {};
}

namespace {

std::string allocating(int device, std::size_t bytes) {
  return "allocating " + std::to_string(bytes) + " bytes on device " + std::to_string(device);
}

/// As what the device's memory can be exported, a bit for each; 0: not at all.
unsigned shareable(int device) {
  const CudaDriver& driver = cuda_driver();
  if (!driver.has_memory) return 0;
  const auto can = [&](CUdevice_attribute attribute) {
    int value = 0;
    return driver.device_attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
  };
  unsigned types = 0;
  if (can(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
    types |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  else if (can(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
    types |= CU_MEM_HANDLE_TYPE_FABRIC;
  return types;
}

}  // namespace

// The default stream, and the device as a whole, would wait for what others run there, which may be
// kernels that wait for this rank.
Status do_at_once(int device, const std::string& what,
                  const std::function<cudaError_t(cudaStream_t)>& enqueue) {
  const RelaxedCapture relaxed;
  TUTTI_TRY(const cudaStream_t stream, utility_stream(device));
  cudaError_t error = enqueue(stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  return cuda_status(error, what);
}

Status clear_memory(int device, std::byte* at, std::size_t bytes, const std::string& what) {
  return do_at_once(device, what,
                    [=](cudaStream_t stream) { return cudaMemsetAsync(at, 0, bytes, stream); });
}

Result<CudaMemory> CudaMemory::allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  CudaMemory memory;
  memory.bytes_ = bytes;
  if (bytes == 0) return memory;
  void* data = nullptr;
  TUTTI_RETURN_IF_ERROR(cuda_status(cudaMalloc(&data, bytes), allocating(device, bytes)));
  memory.data_ = {static_cast<std::byte*>(data), Free{device, {}}};
  TUTTI_RETURN_IF_ERROR(
      clear_memory(device, memory.data(), memory.size(), allocating(device, bytes)));
  return memory;
}

Result<CudaMemory> CudaMemory::allocate_for_peers(int device, std::size_t bytes) {
  if (bytes == 0 || shareable(device) == 0) return allocate(device, bytes);
  const OnDevice on(device);
  CudaMemory memory;
  if (Status mapped = memory.map(device, bytes); !mapped) {
    if (mapped.error().code != Code::kUnsupported) return std::move(mapped.error());
    return allocate(device, bytes);
  }
  TUTTI_RETURN_IF_ERROR(
      clear_memory(device, memory.data(), memory.size(), allocating(device, bytes)));
  return memory;
}

Result<CudaMemory> CudaMemory::allocate_private(int device, std::size_t bytes) {
  int pools = 0;
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device),
                  "asking device " + std::to_string(device) + " for memory pools"));
  if (pools == 0) return allocate(device, bytes);
  const OnDevice on(device);
  CudaMemory memory;
  memory.bytes_ = bytes;
  if (bytes == 0) return memory;
  void* data = nullptr;
  // In the order of a stream, which is all that either of them waits for: cudaFree "will not
  // perform any implicit synchronization" of such memory.
  const auto enqueue = [&](cudaStream_t stream) { return cudaMallocAsync(&data, bytes, stream); };
  TUTTI_RETURN_IF_ERROR(do_at_once(device, allocating(device, bytes), enqueue));
  memory.data_ = {static_cast<std::byte*>(data), Free{device, {}}};
  TUTTI_RETURN_IF_ERROR(
      clear_memory(device, memory.data(), memory.size(), allocating(device, bytes)));
  return memory;
}

Status CudaMemory::map(int device, std::size_t bytes) {
  const CudaDriver& driver = cuda_driver();
  const std::string what = allocating(device, bytes);
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = location_of(device);
  wanted.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(shareable(device));
  std::size_t granule = 1;
  TUTTI_RETURN_IF_ERROR(driver_status(
      driver.memory_granularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM), what));
  bytes_ = (bytes + granule - 1) / granule * granule;
  CUmemGenericAllocationHandle handle = 0;
  const CUresult created = driver.create(&handle, bytes_, &wanted, 0);
  Status status = driver_status(created, what);
  // What a device can, a system may not let a process do: fabric handles take an IMEX channel,
  // which none may have been given (CUDA_ERROR_NOT_PERMITTED).
  if (created == CUDA_ERROR_NOT_PERMITTED || created == CUDA_ERROR_NOT_SUPPORTED)
    status.error().code = Code::kUnsupported;
  if (!status) return status;
  auto mapping = CudaMapping::reserve(bytes_);
  Status added = mapping ? mapping->add(handle, bytes_) : Status(mapping.error());
  driver.release(handle);  // It stays while it is mapped.
  if (!added) return added;
  TUTTI_RETURN_IF_ERROR(mapping->allow({device}));
  std::byte* const data = mapping->data();
  data_ = {data, Free{device, *std::move(mapping)}};
  return ok();
}

Status CudaMemory::allow_peers() {
  CudaMapping& mapping = data_.get_deleter().mapping;
  int devices = 0;
  if (mapping.data() == nullptr || !succeeds(cudaGetDeviceCount(&devices))) return ok();
  const OnDevice on(device());
  std::vector<int> peers;
  for (int peer = 0; peer < devices; ++peer) {
    int can = 0;
    if (peer != device() && succeeds(cudaDeviceCanAccessPeer(&can, peer, device())) && can != 0)
      peers.push_back(peer);
  }
  return peers.empty() ? ok() : mapping.allow(peers);
}

Status CudaMemory::write(std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes == 0) return ok();
  const OnDevice on(device());
  return copy_at_once(device(), data() + offset, from, bytes, cudaMemcpyHostToDevice,
                      "copying to device " + std::to_string(device()));
}

Status CudaMemory::read(std::size_t offset, void* to, std::size_t bytes) const {
  if (bytes == 0) return ok();
  const OnDevice on(device());
  return copy_at_once(device(), to, data() + offset, bytes, cudaMemcpyDeviceToHost,
                      "copying from device " + std::to_string(device()));
}

namespace {

/// Pinned memory that is not in use, by its bytes. Never destroyed: memory may come back late.
struct Spare {
  std::mutex mutex;
  std::multimap<std::size_t, std::byte*> by_bytes;
};
Spare& spare() {
  static auto* const one = new Spare();
  return *one;
}

/// Null: there is none. What was pinned for a context that is gone (cudaDeviceReset) went with it.
std::byte* take_spare(std::size_t bytes) {
  const std::lock_guard lock(spare().mutex);
  auto& list = spare().by_bytes;
  for (auto found = list.find(bytes); found != list.end(); found = list.find(bytes)) {
    std::byte* const data = found->second;
    list.erase(found);
    cudaPointerAttributes attributes = {};
    if (succeeds(cudaPointerGetAttributes(&attributes, data)) &&
        attributes.type == cudaMemoryTypeHost)
      return data;
  }
  return nullptr;
}

}  // namespace

void CudaHostMemory::Free::operator()(std::byte* data) const {
  const std::lock_guard lock(spare().mutex);
  spare().by_bytes.emplace(bytes, data);
}

Result<CudaHostMemory> CudaHostMemory::allocate(std::size_t bytes) {
  CudaHostMemory memory;
  void* data = take_spare(bytes);
  if (data == nullptr) {
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                    "allocating " + std::to_string(bytes) + " bytes of pinned memory"));
  }
  std::memset(data, 0, bytes);
  memory.data_ = {static_cast<std::byte*>(data), Free{bytes}};
  return memory;
}

}  // namespace tutti::exec
