// A program that takes of CUDA only the driver, and finds its functions by their names, as Python's
// bindings do: an all-reduce among all GPUs in memory of their pools. Nothing in it knows of
// simulated GPUs.
#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "said.h"

namespace {

constexpr std::size_t kCount = 3000, kBytes = kCount * sizeof(float);

using Find = CUresult(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
Find* find_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  require(library != nullptr, "libcuda.so.1", dlerror());
  void* const found = dlsym(library, "cuGetProcAddress_v2");
  require(found != nullptr, "cuGetProcAddress_v2", dlerror());
  return reinterpret_cast<Find*>(found);
}

/// What the driver has by that name; null: nothing.
void* look_up(const char* name) {
  static Find* const find = find_driver();
  void* found = nullptr;
  CUdriverProcAddressQueryResult how = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  const CUresult result = find(name, &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &how);
  require((result == CUDA_SUCCESS) == (how == CU_GET_PROC_ADDRESS_SUCCESS), name);
  require((result == CUDA_SUCCESS) == (found != nullptr), name);
  return found;
}

template <class Function, class... Arguments>
void call(const char* name, Function*, Arguments... arguments) {
  void* const found = look_up(name);
  require(found != nullptr, name, "not found");
  const CUresult result = reinterpret_cast<Function*>(found)(arguments...);
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  reinterpret_cast<decltype(&cuGetErrorName)>(look_up("cuGetErrorName"))(result, &text);
  require(false, name, text);
}
#define DRIVER(function, ...) call(#function, &(function)__VA_OPT__(, ) __VA_ARGS__)

void nccl(ncclResult_t result, const char* what) {
  require(result == ncclSuccess, what, ncclGetLastError(nullptr));
}

struct Gpu {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr memory = 0;

  void prepare(CUdevice device) {
    char name[100];
    DRIVER(cuDeviceGetName, name, 100, device);
    require(std::strlen(name) > 0, "cuDeviceGetName");
    DRIVER(cuDevicePrimaryCtxRetain, &context, device);
    DRIVER(cuCtxSetCurrent, context);
    int lowest = 0, highest = 0;
    DRIVER(cuCtxGetStreamPriorityRange, &lowest, &highest);
    DRIVER(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, highest);
    CUmemoryPool pool = nullptr;
    std::uint64_t keeps = 1 << 20;
    DRIVER(cuDeviceGetMemPool, &pool, device);
    DRIVER(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keeps);
    DRIVER(cuMemAllocFromPoolAsync, &memory, kBytes, pool, stream);
    const std::vector<float> mine(kCount, static_cast<float>(1 << device));
    DRIVER(cuMemcpyHtoDAsync, memory, mine.data(), kBytes, stream);
    DRIVER(cuStreamSynchronize, stream);
    look_at_pointer(device, pool);
  }
  void look_at_pointer(CUdevice device, CUmemoryPool pool) const {
    CUmemorytype type{};
    int owner = -1;
    CUmemoryPool from = nullptr;
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    void* places[] = {&type, &owner, &from};
    DRIVER(cuPointerGetAttributes, 3U, wanted, places, memory + 4);
    require(type == CU_MEMORYTYPE_DEVICE && owner == device && from == pool, "device memory");
    const auto host = static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(this));
    DRIVER(cuPointerGetAttributes, 3U, wanted, places, host);
    require(static_cast<int>(type) == 0 && from == nullptr, "memory of the host");
  }
  void look(int device, int devices) {
    CUevent done = nullptr;
    DRIVER(cuCtxSetCurrent, context);
    DRIVER(cuEventCreate, &done, CU_EVENT_DISABLE_TIMING);
    DRIVER(cuEventRecord, done, stream);
    DRIVER(cuEventSynchronize, done);
    std::vector<float> found(kCount);
    DRIVER(cuMemcpyDtoH, found.data(), memory, kBytes);
    for (const float value : found)
      require(value == static_cast<float>((1 << devices) - 1), "ncclAllReduce");
    std::printf("GPU %d: right\n", device);
    DRIVER(cuEventDestroy, done);
    DRIVER(cuMemFreeAsync, memory, stream);
    DRIVER(cuCtxSynchronize);
    DRIVER(cuStreamDestroy, stream);
  }
};

}  // namespace

int main() {
  int devices = 0;
  DRIVER(cuInit, 0U);
  DRIVER(cuDeviceGetCount, &devices);
  require(look_up("cuNoSuchFunction") == nullptr, "cuNoSuchFunction");
  require(look_up("cuModuleLoad") == nullptr, "cuModuleLoad is not simulated, but found");
  std::vector<Gpu> gpus(static_cast<std::size_t>(devices));
  for (int device = 0; device < devices; ++device) gpus[std::size_t(device)].prepare(device);
  std::vector<ncclComm_t> comms(gpus.size());
  nccl(ncclCommInitAll(comms.data(), devices, nullptr), "ncclCommInitAll");
  nccl(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    void* const at = reinterpret_cast<void*>(gpus[i].memory);
    nccl(ncclAllReduce(at, at, kCount, ncclFloat, ncclSum, comms[i], gpus[i].stream),
         "ncclAllReduce");
  }
  nccl(ncclGroupEnd(), "ncclGroupEnd");
  for (int device = 0; device < devices; ++device) gpus[std::size_t(device)].look(device, devices);
  for (ncclComm_t comm : comms) nccl(ncclCommDestroy(comm), "ncclCommDestroy");
}
