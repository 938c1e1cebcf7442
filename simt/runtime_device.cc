// File: simt/runtime_device.cc: devices, errors, and launching kernels.
#include <cuda.h>

#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <set>
#include <string>

#include "simt/machine.h"
#include "simt/residency.h"
#include "simt/runtime.h"
#include "simt/variables.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::simt {
namespace {

thread_local int chosen_device = 0;
thread_local int context_device = -1;  // The current context's; -1: there is none.
thread_local cudaError_t last_error = cudaSuccess;

constexpr unsigned kMostThreads = 1024;

Resources multiprocessor_of(int device) { return resources_of_multiprocessor(cuda_gpu(device).sm); }
/// What the system has of a multiprocessor's shared memory for each block.
constexpr std::size_t kReserved = 1024;
std::size_t most_shared_bytes(int device) {
  const std::size_t all = multiprocessor_of(device).shared_bytes;
  return cuda_gpu(device).sm >= 80 ? all - kReserved : all;
}
/// How many of a kernel's blocks a multiprocessor runs at a time.
int resident_blocks(const Kernel& kernel, int threads, std::size_t shared_bytes, int device) {
  const auto block =
      resources_of_block(kernel, static_cast<unsigned>(threads), shared_bytes, cuda_gpu(device).sm);
  return blocks_that_fit(multiprocessor_of(device), block);
}

/// A launch number for each device, so that seeds do not depend on when streams run.
std::uint64_t next_launch(int device) {
  static std::atomic<std::uint64_t> numbers[kMostDevices];
  return numbers[device]++;
}

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0;
};
PciAddress address_of(int device) {
  PciAddress at;
  std::sscanf(cuda_gpu(device).bus.c_str(), "%x:%x:%x", &at.domain, &at.bus, &at.device);
  return at;
}

int yes(const std::optional<bool>& flag) { return flag.value_or(false) ? 1 : 0; }

std::size_t blocks_in(dim3 grid) { return std::size_t{grid.x} * grid.y * grid.z; }

std::atomic<std::uint64_t> with_context{0};
std::atomic<void (*)(int device)> called_by_flush{nullptr};

/// As on a GPU that is not EAGER: a kernel's first use on a device loads it, may wait for all that
/// runs there, and keeps other threads from launching meanwhile.
void load(const void* kernel, int device) {
  static auto* const loaded = new std::set<const void*>[kMostDevices];
  make_variables(device);
  const std::lock_guard lock(launching(device));
  if (!loaded[device].insert(kernel).second || !settings().lazy) return;
  const Waiting waiting("to load a kernel, the host waits for all that the device runs");
  drain_device(device);
}

}  // namespace

void make_context(int device) { with_context |= std::uint64_t{1} << device; }
int this_device() {
  if (context_device < 0) set_current_context(chosen_device);
  return context_device;
}
int current_context() { return context_device; }
void set_current_context(int device) {
  context_device = device;
  if (device >= 0) make_context(device);
}
std::uint64_t contexts() { return with_context; }

void set_flush(void (*flush)(int device)) { called_by_flush = flush; }

cudaError_t failed(cudaError_t error) {
  last_error = error;
  return error;
}

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define TUTTI_SIMT_NAME(name) \
  case name: return #name;
    TUTTI_SIMT_NAME(cudaSuccess)
    TUTTI_SIMT_NAME(cudaErrorCapturedEvent)
    TUTTI_SIMT_NAME(cudaErrorCooperativeLaunchTooLarge)
    TUTTI_SIMT_NAME(cudaErrorDevicesUnavailable)
    TUTTI_SIMT_NAME(cudaErrorDeviceUninitialized)
    TUTTI_SIMT_NAME(cudaErrorHostMemoryAlreadyRegistered)
    TUTTI_SIMT_NAME(cudaErrorHostMemoryNotRegistered)
    TUTTI_SIMT_NAME(cudaErrorIllegalState)
    TUTTI_SIMT_NAME(cudaErrorInvalidConfiguration)
    TUTTI_SIMT_NAME(cudaErrorInvalidDevice)
    TUTTI_SIMT_NAME(cudaErrorInvalidDeviceFunction)
    TUTTI_SIMT_NAME(cudaErrorInvalidResourceHandle)
    TUTTI_SIMT_NAME(cudaErrorInvalidSymbol)
    TUTTI_SIMT_NAME(cudaErrorInvalidValue)
    TUTTI_SIMT_NAME(cudaErrorLaunchOutOfResources)
    TUTTI_SIMT_NAME(cudaErrorMapBufferObjectFailed)
    TUTTI_SIMT_NAME(cudaErrorMemoryAllocation)
    TUTTI_SIMT_NAME(cudaErrorNoKernelImageForDevice)
    TUTTI_SIMT_NAME(cudaErrorNotReady)
    TUTTI_SIMT_NAME(cudaErrorNotSupported)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessAlreadyEnabled)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessNotEnabled)
    TUTTI_SIMT_NAME(cudaErrorPeerAccessUnsupported)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureImplicit)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureInvalidated)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureIsolation)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureMerge)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureUnjoined)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureUnsupported)
    TUTTI_SIMT_NAME(cudaErrorStreamCaptureWrongThread)
    TUTTI_SIMT_NAME(cudaErrorSymbolNotFound)
#undef TUTTI_SIMT_NAME
    default: return "an error that the simulator never gives";
  }
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
cudaError_t cudaRuntimeGetVersion(int* version) { return answer(version, CUDART_VERSION); }
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }

cudaError_t cudaGetDeviceCount(int* count) { return answer(count, settings().devices); }
cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  if ((settings().taken >> device & 1) != 0) return failed(cudaErrorDevicesUnavailable);
  chosen_device = device;
  set_current_context(device);  // As CUDA does from 12 on.
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  return answer(device, context_device >= 0 ? context_device : chosen_device);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  switch (static_cast<int>(attribute)) {  // Some of the driver's, which the runtime lacks.
    case cudaDevAttrComputeCapabilityMajor: *value = cuda_gpu(device).sm / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = cuda_gpu(device).sm % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = settings().multiprocessors; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: *value = static_cast<int>(kMostThreads); break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = std::numeric_limits<int>::max(); break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(most_shared_bytes(device));
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(multiprocessor_of(device).shared_bytes);
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = cuda_gpu(device).sm >= 80 ? static_cast<int>(kReserved) : 0;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = multiprocessor_of(device).registers;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = multiprocessor_of(device).threads; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = multiprocessor_of(device).blocks; break;
    case cudaDevAttrPciDomainId: *value = static_cast<int>(address_of(device).domain); break;
    case cudaDevAttrPciBusId: *value = static_cast<int>(address_of(device).bus); break;
    case cudaDevAttrPciDeviceId: *value = static_cast<int>(address_of(device).device); break;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrHostRegisterSupported: *value = 1; break;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = stream_values_are_refused() ? 0 : 1;
      break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode: *value = 0; break;
    case cudaDevAttrHostNumaId: *value = cuda_gpu(device).host_numa; break;
    case cudaDevAttrGPUDirectRDMAWritesOrdering:
      *value = settings().rdma_unordered ? cudaGPUDirectRDMAWritesOrderingNone
                                         : cudaGPUDirectRDMAWritesOrderingOwner;
      break;
    case cudaDevAttrGPUDirectRDMAFlushWritesOptions:
      *value = settings().rdma_flush ? cudaFlushGPUDirectRDMAWritesOptionHost : 0;
      break;
    case cudaDevAttrGPUDirectRDMASupported: *value = yes(cuda_gpu(device).gpudirect_rdma); break;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
      *value = settings().dma_buf ? 1 : yes(cuda_gpu(device).dma_buf);
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      *value = yes(cuda_gpu(device).fabric_handles);
      break;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: *value = yes(cuda_gpu(device).multicast); break;
    default: return failed(cudaErrorInvalidValue);  // Nobody has needed it yet.
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  std::string bus = cuda_gpu(settings().mig ? device & ~1 : device).bus;
  for (char& c : bus) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::snprintf(text, static_cast<std::size_t>(length), "%s", bus.c_str());
  return cudaSuccess;
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  const std::string bus = tutti::topology::parse_bus(text);
  for (int i = 0; i < settings().devices; ++i) {
    if (cuda_gpu(i).bus != bus) continue;
    // A process sees just one of a GPU's MIG instances: its own.
    *device = settings().mig && (this_device() & ~1) == i ? this_device() : i;
    return cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTarget target,
                                               cudaFlushGPUDirectRDMAWritesScope scope) {
  if (!settings().rdma_flush) return failed(cudaErrorNotSupported);
  if (target != cudaFlushGPUDirectRDMAWritesTargetCurrentDevice ||
      scope < cudaFlushGPUDirectRDMAWritesToOwner)
    return failed(cudaErrorInvalidValue);
  if (auto* const flush = called_by_flush.load()) flush(this_device());
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  *attributes = {};
  const Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  if ((settings().no_code >> this_device() & 1) != 0)
    return failed(cudaErrorNoKernelImageForDevice);
  attributes->maxThreadsPerBlock = kernel->most_threads;
  attributes->numRegs = kernel->registers;
  attributes->sharedSizeBytes = kernel->shared_bytes;
  load(function, this_device());
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int threads, std::size_t shared_bytes) {
  const Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return failed(cudaErrorInvalidDeviceFunction);
  if (threads <= 0) return failed(cudaErrorInvalidValue);
  const bool runs = threads <= kernel->most_threads;
  return answer(blocks, runs ? resident_blocks(*kernel, threads, shared_bytes, this_device()) : 0);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, std::size_t shared_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared_bytes);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared_bytes, cudaStream_t handle) {
  const Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) {
    say_foreign_kernel(function);
    return failed(cudaErrorInvalidDeviceFunction);
  }
  const std::size_t threads = blocks_in(block);
  if (threads == 0 || threads > kMostThreads || blocks_in(grid) == 0)
    return failed(cudaErrorInvalidConfiguration);
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr || stream->device != this_device()) {
    return failed(cudaErrorInvalidResourceHandle);  // Another device's stream.
  }
  const int device = stream->device;
  if (kernel->shared_bytes + shared_bytes > most_shared_bytes(device))
    return failed(cudaErrorInvalidConfiguration);
  const int sm = cuda_gpu(device).sm;
  const Resources multiprocessor = multiprocessor_of(device);
  const Resources takes =
      resources_of_block(*kernel, static_cast<unsigned>(threads), shared_bytes, sm);
  if (threads > static_cast<std::size_t>(kernel->most_threads) ||
      blocks_that_fit(multiprocessor, takes) == 0) {
    return failed(cudaErrorLaunchOutOfResources);
  }
  load(function, device);
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = (kernel->argument_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::shared_ptr<void> packed(std::aligned_alloc(kAlignment, bytes), std::free);
  kernel->pack(arguments, packed.get());
  return enqueue(handle, [=] {
    run({kernel, packed.get(), grid, block, shared_bytes, device, next_launch(device),
         multiprocessor, takes});
  });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel,
                                void** arguments) {
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension &&
        attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z > 1)
      return failed(cudaErrorNotSupported);  // Blocks of a cluster reach each other's memory.
    cooperative |= attribute.id == cudaLaunchAttributeCooperative && attribute.val.cooperative != 0;
  }
  auto* const launch = cooperative ? &cudaLaunchCooperativeKernel : &cudaLaunchKernel;
  return launch(kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes,
                config->stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                        std::size_t shared_bytes, cudaStream_t stream) {
  int on_each = 0;
  const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &on_each, kernel, static_cast<int>(blocks_in(block)), shared_bytes);
  if (error != cudaSuccess) return error;
  const auto fit =
      static_cast<std::size_t>(on_each) * static_cast<std::size_t>(settings().multiprocessors);
  if (blocks_in(grid) > fit) return failed(cudaErrorCooperativeLaunchTooLarge);
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
