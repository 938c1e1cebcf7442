#include "cuda/mesh/gpudirect_memory.h"

#include <string>

namespace tutti::exec {
namespace {

constexpr std::uintptr_t kPage = std::uintptr_t{64} << 10;

std::uintptr_t whole_pages(std::uintptr_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool has_dma_buf(int device) {
  return cuda_driver().range_handle != nullptr &&
         attribute_of(device, static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)) !=
             0;
}

bool sees_writes(int device) {
  return attribute_of(device, cudaDevAttrGPUDirectRDMAWritesOrdering) >=
         cudaGPUDirectRDMAWritesOrderingOwner;
}

/// This thread's device is the one.
Status flush() {
  return cuda_status(
      cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice,
                                         cudaFlushGPUDirectRDMAWritesToOwner),
      "flushing what the network wrote into device memory");
}

}  // namespace

Status GpuDirectMemory::check(int device) {
  const std::string name = "device " + std::to_string(device);
  if (attribute_of(device, cudaDevAttrGPUDirectRDMASupported) == 0 && !has_dma_buf(device)) {
    return Error{
        Code::kUnsupported,
        name + " gives network cards no access to its memory (GPUDirect RDMA), as CUDA says"};
  }
  const int options = attribute_of(device, cudaDevAttrGPUDirectRDMAFlushWritesOptions);
  if (!sees_writes(device) && (options & cudaFlushGPUDirectRDMAWritesOptionHost) == 0) {
    return Error{Code::kUnsupported,
                 name + " does not order what network cards write, and has no flush from the host"};
  }
  return ok();
}

Result<GpuDirectMemory> GpuDirectMemory::allocate(int device, std::size_t bytes) {
  TUTTI_RETURN_IF_ERROR(check(device));
  GpuDirectMemory made;
  TUTTI_TRY(made.memory_, CudaMemory::allocate(device, whole_pages(bytes) + kPage));
  const auto begin = reinterpret_cast<std::uintptr_t>(made.memory_.data());
  made.pages_ = {made.memory_.data() + (whole_pages(begin) - begin), whole_pages(bytes)};
  made.needs_flush_ = !sees_writes(device);
  if (!has_dma_buf(device)) return made;
  const OnDevice on(device);
  int descriptor = -1;
  const CUresult result =
      cuda_driver().range_handle(&descriptor, reinterpret_cast<CUdeviceptr>(made.pages_.data()),
                                 made.pages_.size(), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  // Where there is none, its address may do.
  if (result == CUDA_SUCCESS) made.dma_buf_.reset(descriptor);
  return made;
}

GpuDirectSlots GpuDirectMemory::description(std::span<const int> hosts) const {
  GpuDirectSlots gpudirect{.memory = pages_, .hosts = hosts, .dma_buf = dma_buf_.get()};
  if (needs_flush_) gpudirect.flush = flush;
  return gpudirect;
}

}  // namespace tutti::exec
