// The simulated runtime keeps the promises of CUDA's that host code rests on: order within streams,
// events between them, the legacy default stream, captured graphs, IPC between processes, errors.
#include "simt/language.h"
// The language comes first.
#include <cuda.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "support/catch.h"

namespace tutti {
namespace {

#define OK(...) REQUIRE((__VA_ARGS__) == cudaSuccess)

__global__ void wait_then_add(const std::uint64_t* gate, std::uint64_t want, std::uint64_t* sum,
                              std::uint64_t value) {
  if (threadIdx.x != 0) return;
  while (cuda::load_acquire(gate) < want) continue;
  cuda::store_release(sum, cuda::load_acquire(sum) * 10 + value);
}

void start(cudaStream_t stream, const std::uint64_t* gate, std::uint64_t want, std::uint64_t* sum,
           std::uint64_t value) {
  void* list[] = {&gate, &want, &sum, &value};
  OK(cudaLaunchKernel(TUTTI_KERNEL_HANDLE(wait_then_add), dim3(1), dim3(32), list, 0, stream));
}

// The case that forks comes first: no thread may exist yet. So the others do not run before it.
std::string exchange_by_ipc() {
  int to_child[2], to_parent[2];
  if (pipe(to_child) != 0 || pipe(to_parent) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    cudaIpcMemHandle_t handle;
    cudaIpcEventHandle_t event_handle;
    cudaEvent_t event = nullptr;
    void* memory = nullptr;
    bool good =
        read(to_child[0], &handle, sizeof handle) == sizeof handle &&
        read(to_child[0], &event_handle, sizeof event_handle) == sizeof event_handle &&
        cudaSetDevice(1) == cudaSuccess &&
        cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
        cudaIpcOpenEventHandle(&event, event_handle) == cudaSuccess;
    if (good) {
      std::vector<unsigned char> bytes(1000);
      good = cudaStreamWaitEvent(nullptr, event, 0) == cudaSuccess &&
             cudaMemcpy(bytes.data(), memory, 1000, cudaMemcpyDefault) == cudaSuccess &&
             std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 7; }) &&
             cudaMemset(memory, 9, 1000) == cudaSuccess &&
             cudaIpcCloseMemHandle(memory) == cudaSuccess;
    }
    const char answer = good ? 'y' : 'n';
    _exit(write(to_parent[1], &answer, 1) == 1 ? 0 : 1);
  }
  void* memory = nullptr;
  cudaIpcMemHandle_t handle;
  cudaIpcEventHandle_t event_handle;
  cudaEvent_t event = nullptr;
  void* own = nullptr;
  char answer = '?';
  unsigned char last = 0;
  if (cudaMalloc(&memory, 1000) != cudaSuccess) return "cudaMalloc";
  if (cudaIpcGetMemHandle(&handle, memory) != cudaSuccess) return "cudaIpcGetMemHandle";
  if (cudaIpcOpenMemHandle(&own, handle, 0) == cudaSuccess) return "opened its own handle";
  if (cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming) !=
          cudaSuccess ||
      cudaIpcGetEventHandle(&event_handle, event) != cudaSuccess) {
    return "an event for processes";
  }
  cudaMemsetAsync(memory, 7, 1000, nullptr);
  cudaEventRecord(event, nullptr);
  if (write(to_child[1], &handle, sizeof handle) != sizeof handle ||
      write(to_child[1], &event_handle, sizeof event_handle) != sizeof event_handle ||
      read(to_parent[0], &answer, 1) != 1) {
    return "the pipe";
  }
  waitpid(child, nullptr, 0);
  if (answer != 'y') return "the other process saw other bytes";
  if (cudaMemcpy(&last, static_cast<char*>(memory) + 999, 1, cudaMemcpyDefault) != cudaSuccess ||
      last != 9) {
    return "what the other process wrote is not here";
  }
  cudaEventDestroy(event);
  return cudaFree(memory) == cudaSuccess ? "" : "cudaFree";
}
// Before main, so before any thread.
const std::string ipc_complaint = exchange_by_ipc();

TEST_CASE("memory and events are shared between processes by IPC handles") {
  CHECK(ipc_complaint == "");
}

TEST_CASE("a stream runs in order, and streams run side by side") {
  cudaStream_t first = nullptr, second = nullptr;
  OK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  alignas(64) std::uint64_t gate = 0, other_gate = 0;
  alignas(64) std::uint64_t sum = 0;
  start(first, &gate, 1, &sum, 1);
  start(first, &other_gate, 0, &sum, 2);
  CHECK(cudaStreamQuery(first) == cudaErrorNotReady);
  std::uint64_t one = 1;
  start(second, &other_gate, 0, &gate, one);  // Opens the gate from the other stream.
  OK(cudaStreamSynchronize(first));
  CHECK(__atomic_load_n(&sum, __ATOMIC_ACQUIRE) == 12);
  CHECK(cudaStreamQuery(first) == cudaSuccess);
  OK(cudaStreamSynchronize(second));
  OK(cudaStreamDestroy(first));
  OK(cudaStreamDestroy(second));
  CHECK(cudaStreamSynchronize(second) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("to wait for a device is to wait for its destroyed streams, too") {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  alignas(64) std::uint64_t gate = 0, sum = 0;
  start(stream, &gate, 1, &sum, 1);
  OK(cudaStreamDestroy(stream));
  auto opened = std::async(std::launch::async, [&gate] {
    usleep(20000);  // Until the device is waited for.
    __atomic_store_n(&gate, 1, __ATOMIC_RELEASE);
  });
  OK(cudaDeviceSynchronize());
  CHECK(__atomic_load_n(&sum, __ATOMIC_ACQUIRE) == 1);
  opened.get();
}

TEST_CASE("how many blocks run at a time is by threads, registers, shared memory and slots") {
  const void* kernel = TUTTI_KERNEL_HANDLE(wait_then_add);
  const auto resident = [kernel](int threads, std::size_t shared_bytes) {
    int blocks = -1;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes));
    return blocks;
  };
  cudaFuncAttributes attributes;
  const auto needs = [&](int most_threads, int registers, std::size_t shared_bytes) {
    simt::set_needs(kernel, most_threads, registers, shared_bytes);
    OK(cudaFuncGetAttributes(&attributes, kernel));
    CHECK(attributes.maxThreadsPerBlock == most_threads);
    CHECK(attributes.numRegs == registers);
    CHECK(attributes.sharedSizeBytes == shared_bytes);
  };
  OK(cudaFuncGetAttributes(&attributes, kernel));  // A kernel that promises no bound.
  CHECK(attributes.maxThreadsPerBlock == 1024);
  CHECK(attributes.numRegs == 64);
  CHECK(resident(1024, 0) == 1);
  needs(512, 128, 0);
  CHECK(resident(512, 0) == 1);
  CHECK(resident(256, 0) == 2);
  CHECK(resident(513, 0) == 0);
  needs(1024, 32, 0);
  CHECK(resident(1024, 0) == 2);
  CHECK(resident(1, 0) == 32);                       // By the slots for blocks.
  CHECK(resident(96, std::size_t{100} << 10) == 2);  // There are 228 KiB, 1 of them for each block.
  needs(1024, 32, std::size_t{14} << 10);
  CHECK(resident(96, std::size_t{100} << 10) == 1);

  std::uint64_t gate = 0, want = 0, value = 1, sum = 0;
  std::uint64_t *gate_at = &gate, *sum_at = &sum;
  void* list[] = {&gate_at, &want, &sum_at, &value};
  needs(512, 128, 0);
  CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(513), list, 0, nullptr) ==
        cudaErrorLaunchOutOfResources);
  const auto fit = static_cast<unsigned>(2 * simt::settings().multiprocessors);
  CHECK(cudaLaunchCooperativeKernel(kernel, dim3(fit + 1), dim3(256), list, 0, nullptr) ==
        cudaErrorCooperativeLaunchTooLarge);
  simt::set_needs(kernel, 1024, 64, 0);
  cudaGetLastError();
}

TEST_CASE("an event orders two streams; the default stream waits for blocking ones") {
  simt::settings().jitter = true;
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  OK(cudaStreamCreate(&first));
  OK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
  OK(cudaEventCreate(&event));
  for (int round = 0; round < 5; ++round) {
    alignas(64) std::uint64_t gate = 0;
    alignas(64) std::uint64_t sum = 0;
    start(first, &gate, 0, &sum, 1);
    OK(cudaEventRecord(event, first));
    OK(cudaStreamWaitEvent(second, event, 0));
    start(second, &gate, 0, &sum, 2);
    OK(cudaStreamSynchronize(second));
    CHECK(sum == 12);
    start(first, &gate, 0, &sum, 3);
    start(nullptr, &gate, 0, &sum, 4);
    OK(cudaStreamSynchronize(nullptr));
    CHECK(sum == 1234);
  }
  simt::settings().jitter = false;
  OK(cudaEventQuery(event));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(first));
  OK(cudaStreamDestroy(second));
}

TEST_CASE("a captured graph runs what was captured, as often as it is launched") {
  cudaStream_t stream = nullptr, side = nullptr;
  cudaEvent_t fork_event = nullptr, join_event = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  OK(cudaEventCreate(&fork_event));
  OK(cudaEventCreate(&join_event));
  alignas(64) std::uint64_t gate = 0;
  alignas(64) std::uint64_t sum = 0;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  start(stream, &gate, 0, &sum, 1);
  OK(cudaEventRecord(fork_event, stream));
  OK(cudaStreamWaitEvent(side, fork_event, 0));
  start(side, &gate, 0, &sum, 2);
  OK(cudaEventRecord(join_event, side));
  OK(cudaStreamWaitEvent(stream, join_event, 0));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OK(cudaStreamIsCapturing(side, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamIsCapturing(side, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  CHECK(sum == 0);
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaGraphLaunch(executable, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(sum == 1212);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaEventDestroy(fork_event));
  OK(cudaEventDestroy(join_event));
  OK(cudaStreamDestroy(stream));
  OK(cudaStreamDestroy(side));
}

TEST_CASE("to wait for a device spoils what is captured there, and there alone") {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const int waits_for : {0, 1}) {
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    OK(cudaSetDevice(waits_for));
    CHECK(cudaDeviceSynchronize() ==
          (waits_for == 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
    OK(cudaSetDevice(0));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) ==
          (waits_for == 0 ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
    CHECK((graph == nullptr) == (waits_for == 0));
    if (graph != nullptr) OK(cudaGraphDestroy(graph));
  }
  OK(cudaStreamDestroy(stream));
}

TEST_CASE("to load a kernel waits for what its device runs, once") {
  OK(cudaSetDevice(3));  // Where no other test has loaded it.
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::atomic<bool> done{false};
  const auto slowly = [](void* flag) {
    usleep(20000);
    *static_cast<std::atomic<bool>*>(flag) = true;
  };
  cudaFuncAttributes attributes;
  OK(cudaLaunchHostFunc(stream, slowly, &done));
  OK(cudaFuncGetAttributes(&attributes, TUTTI_KERNEL_HANDLE(wait_then_add)));
  CHECK(done);
  std::promise<void> loaded;
  OK(cudaLaunchHostFunc(
      stream, [](void* next) { static_cast<std::promise<void>*>(next)->get_future().wait(); },
      &loaded));
  OK(cudaFuncGetAttributes(&attributes, TUTTI_KERNEL_HANDLE(wait_then_add)));
  loaded.set_value();
  OK(cudaStreamSynchronize(stream));
  OK(cudaStreamDestroy(stream));
  OK(cudaSetDevice(0));
}

TEST_CASE("fresh memory is not zero, and bounds of copies are checked") {
  void* memory = nullptr;
  OK(cudaMalloc(&memory, 100));
  unsigned char bytes[100];
  OK(cudaMemcpy(bytes, memory, 100, cudaMemcpyDefault));
  CHECK(std::all_of(bytes, bytes + 100, [](unsigned char b) { return b == 0xC9; }));
  CHECK(cudaMemcpy(memory, bytes, 101, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  cudaPointerAttributes attributes;
  OK(cudaPointerGetAttributes(&attributes, static_cast<char*>(memory) + 50));
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.device == 0);
  OK(cudaFree(memory));
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  OK(cudaPointerGetAttributes(&attributes, bytes));
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaMalloc(&memory, std::size_t{1} << 40) == cudaErrorMemoryAllocation);
  cudaGetLastError();
}

/// A function of the driver, as programs ask for it.
template <class Function>
Function* driver_function(const char* name, Function* /*like*/) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  CAPTURE(name);
  OK(cudaGetDriverEntryPointByVersion(name, &found, 12010, cudaEnableDefault, &result));
  REQUIRE(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<Function*>(found);
}
#define DRIVER(function) driver_function(#function, &(function))

TEST_CASE("memory is set by elements of 1, 2 and 4 bytes, in lines and in rows") {
  constexpr std::size_t kBytes = 4 * 24;
  void* memory = nullptr;
  OK(cudaMalloc(&memory, kBytes));
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  const auto found = [&] {
    OK(cudaStreamSynchronize(stream));
    std::vector<std::uint32_t> words(kBytes / 4);
    OK(cudaMemcpy(words.data(), memory, kBytes, cudaMemcpyDefault));
    return words;
  };
  const auto all = [&](std::uint32_t value) {
    return found() == std::vector<std::uint32_t>(kBytes / 4, value);
  };
  CHECK(DRIVER(cuMemsetD32Async)(at, 0x12345678, kBytes / 4, stream) == CUDA_SUCCESS);
  CHECK(all(0x12345678));
  CHECK(DRIVER(cuMemsetD16Async)(at, 0xabcd, kBytes / 2, stream) == CUDA_SUCCESS);
  CHECK(all(0xabcdabcd));
  CHECK(DRIVER(cuMemsetD8Async)(at, 0x5a, kBytes, stream) == CUDA_SUCCESS);
  CHECK(all(0x5a5a5a5a));
  CHECK(DRIVER(cuMemsetD32)(at, 7, kBytes / 4) == CUDA_SUCCESS);
  CHECK(all(7));
  CHECK(DRIVER(cuMemsetD16)(at, 0x0101, kBytes / 2) == CUDA_SUCCESS);
  CHECK(all(0x01010101));
  CHECK(DRIVER(cuMemsetD8)(at, 0, kBytes) == CUDA_SUCCESS);
  CHECK(all(0));
  // Four rows of six words, of which the first two are set.
  const auto rows = [](std::uint32_t value) {
    std::vector<std::uint32_t> words(kBytes / 4, 0);
    for (std::size_t row = 0; row < 4; ++row) words[6 * row] = words[6 * row + 1] = value;
    return words;
  };
  CHECK(DRIVER(cuMemsetD2D32)(at, 24, 9, 2, 4) == CUDA_SUCCESS);
  CHECK(found() == rows(9));
  CHECK(DRIVER(cuMemsetD2D32Async)(at, 24, 10, 2, 4, stream) == CUDA_SUCCESS);
  CHECK(found() == rows(10));
  CHECK(DRIVER(cuMemsetD2D16)(at, 24, 0x0202, 4, 4) == CUDA_SUCCESS);
  CHECK(found() == rows(0x02020202));
  CHECK(DRIVER(cuMemsetD2D16Async)(at, 24, 0x0303, 4, 4, stream) == CUDA_SUCCESS);
  CHECK(found() == rows(0x03030303));
  CHECK(DRIVER(cuMemsetD2D8)(at, 24, 4, 8, 4) == CUDA_SUCCESS);
  CHECK(found() == rows(0x04040404));
  CHECK(DRIVER(cuMemsetD2D8Async)(at, 24, 5, 8, 4, stream) == CUDA_SUCCESS);
  CHECK(found() == rows(0x05050505));
  OK(cudaMemset2D(memory, 24, 6, 8, 4));
  CHECK(found() == rows(0x06060606));
  OK(cudaMemset2DAsync(memory, 24, 7, 8, 4, stream));
  CHECK(found() == rows(0x07070707));
  CHECK(DRIVER(cuStreamWriteValue32)(stream, at + 4, 77, 0) == CUDA_SUCCESS);
  auto one = rows(0x07070707);
  one[1] = 77;
  CHECK(found() == one);
  OK(cudaStreamDestroy(stream));
  OK(cudaFree(memory));
}

TEST_CASE("a stream waits for a value that another stream writes, or one not below it") {
  std::uint64_t* words = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&words), 4 * sizeof *words));
  OK(cudaMemset(words, 0, 4 * sizeof *words));
  const auto at = reinterpret_cast<CUdeviceptr>(words);
  cudaStream_t waits = nullptr, writes = nullptr;
  OK(cudaStreamCreateWithFlags(&waits, cudaStreamNonBlocking));
  OK(cudaStreamCreateWithFlags(&writes, cudaStreamNonBlocking));
  const auto write = [&](std::uint64_t value) {
    CHECK(DRIVER(cuStreamWriteValue64)(writes, at, value, 0) == CUDA_SUCCESS);
    OK(cudaStreamSynchronize(writes));
  };
  const std::uint64_t large = std::uint64_t{1} << 40;
  CHECK(DRIVER(cuStreamWaitValue64)(waits, at, large, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS);
  CHECK(DRIVER(cuStreamWriteValue64)(waits, at + 8, 5, 0) == CUDA_SUCCESS);
  CHECK(DRIVER(cuStreamWaitValue64)(waits, at, 7, CU_STREAM_WAIT_VALUE_EQ) == CUDA_SUCCESS);
  write(large - 1);
  CHECK(cudaStreamQuery(waits) == cudaErrorNotReady);
  write(large + 1);
  // relaxed: nothing but the word is passed on.
  while (std::atomic_ref(words[1]).load(std::memory_order_relaxed) != 5) usleep(100);
  CHECK(cudaStreamQuery(waits) == cudaErrorNotReady);  // For the 7.
  write(7);
  OK(cudaStreamSynchronize(waits));
  CHECK(cuStreamWaitValue64(waits, at + 4, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  OK(cudaStreamDestroy(waits));
  OK(cudaStreamDestroy(writes));
  OK(cudaFree(words));
}

TEST_CASE("what is out of bounds, not aligned, or rows that overlap, is not set") {
  constexpr std::size_t kBytes = 4 * 24;
  void* memory = nullptr;
  OK(cudaMalloc(&memory, kBytes));
  OK(cudaMemset(memory, 7, kBytes));
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  cudaGetLastError();
  CHECK(cuMemsetD32(at, 1, kBytes / 4 + 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32(at, 1, ~std::size_t{0}) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD32(at + 2, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuStreamWriteValue32(nullptr, at + 2, 1, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD16(at + 1, 1, 1) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD2D32(at, 4, 1, 2, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD2D32(at, 26, 1, 2, 2) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemsetD2D32(at, 24, 1, 2, 5) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  CHECK(cudaMemset2D(memory, 4, 1, 8, 4) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  unsigned char bytes[kBytes];
  OK(cudaMemcpy(bytes, memory, kBytes, cudaMemcpyDefault));
  CHECK(std::all_of(bytes, bytes + kBytes, [](unsigned char b) { return b == 7; }));
  OK(cudaFree(memory));
}

TEST_CASE("the driver's current context is that of the device that the runtime has chosen") {
  int devices = 0;
  OK(cudaGetDeviceCount(&devices));
  REQUIRE(devices > 1);
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 1;
    int active = 0;
    CHECK(cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS);
    CHECK((active == 1 && flags == 0));
    CUcontext primary = nullptr, current = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&primary, device) == CUDA_SUCCESS);
    OK(cudaSetDevice(device));
    CHECK(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == primary);
    OK(cudaSetDevice((device + 1) % devices));
    CHECK(cuCtxSetCurrent(primary) == CUDA_SUCCESS);
    int chosen = -1;
    OK(cudaGetDevice(&chosen));
    CHECK(chosen == device);
    CHECK(cuDevicePrimaryCtxRelease(device) == CUDA_SUCCESS);
  }
  CUcontext none = nullptr;
  CHECK(cuDevicePrimaryCtxRetain(&none, devices) == CUDA_ERROR_INVALID_DEVICE);
  CHECK(cuDevicePrimaryCtxRetain(&none, -1) == CUDA_ERROR_INVALID_DEVICE);
  OK(cudaSetDevice(0));
}

TEST_CASE("launches that a GPU refuses are refused") {
  const void* kernel = TUTTI_KERNEL_HANDLE(wait_then_add);
  alignas(64) std::uint64_t gate = 0, sum = 0;
  const std::uint64_t* gate_at = &gate;
  std::uint64_t* sum_at = &sum;
  std::uint64_t zero = 0;
  void* list[] = {&gate_at, &zero, &sum_at, &zero};
  CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(1025), list, 0, nullptr) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(kernel, dim3(0), dim3(32), list, 0, nullptr) ==
        cudaErrorInvalidConfiguration);
  CHECK(cudaLaunchKernel(&gate, dim3(1), dim3(32), list, 0, nullptr) ==
        cudaErrorInvalidDeviceFunction);
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  OK(cudaSetDevice(1));
  CHECK(cudaLaunchKernel(kernel, dim3(1), dim3(32), list, 0, stream) ==
        cudaErrorInvalidResourceHandle);
  OK(cudaSetDevice(0));
  OK(cudaStreamDestroy(stream));
  CHECK(cudaSetDevice(simt::settings().devices) == cudaErrorInvalidDevice);
  cudaGetLastError();
}

}  // namespace
}  // namespace tutti
