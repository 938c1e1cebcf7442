// A program that is compiled for per-thread default streams: its null stream is the thread's own,
// in the runtime's functions and in the driver's.
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include "simt/language.h"
// The language comes first.
#include <cuda.h>

#include <thread>

#include "support/catch.h"

namespace tutti {
namespace {

#define OK(...) REQUIRE((__VA_ARGS__) == cudaSuccess)

__global__ void wait_then_set(const std::uint64_t* gate, std::uint64_t* at) {
  if (threadIdx.x != 0) return;
  while (cuda::load_acquire(gate) == 0) continue;
  cuda::store_release(at, 7);
}

/// A kernel that waits for a gate and then writes 7, on a stream of a thread that has ended.
class Other {
 public:
  explicit Other(cudaStream_t stream) {
    // Loaded before: that waits for what the device runs.
    cudaFuncAttributes attributes;
    OK(cudaFuncGetAttributes(&attributes, kernel()));
    OK(cudaHostAlloc(reinterpret_cast<void**>(&words_), 2 * sizeof *words_, 0));
    words_[0] = words_[1] = 0;
    OK(cudaMalloc(reinterpret_cast<void**>(&at_), sizeof *at_));
    OK(cudaMemset(at_, 0, sizeof *at_));
    std::thread([this, stream] {
      const std::uint64_t* gate = words_;
      void* list[] = {&gate, &at_};
      launched_ = cudaLaunchKernel(kernel(), dim3(1), dim3(32), list, 0, stream);
    }).join();
    OK(launched_);
  }
  ~Other() {
    open();
    cudaDeviceSynchronize();
    cudaFreeHost(words_);
    cudaFree(at_);
  }
  Other(const Other&) = delete;
  Other& operator=(const Other&) = delete;

  void open() { cuda::store_release(words_, 1); }
  std::uint64_t* at() { return at_; }
  /// Pinned memory for a copy of that. To free any would wait for the kernel.
  std::uint64_t* copy() { return words_ + 1; }

 private:
  static const void* kernel() { return TUTTI_KERNEL_HANDLE(wait_then_set); }

  std::uint64_t *words_ = nullptr, *at_ = nullptr;
  cudaError_t launched_ = cudaSuccess;
};

/// What this thread reads, by a default stream of its own or by the legacy one, of what the other
/// thread's kernel writes.
std::uint64_t read_after(Other& other, cudaStream_t stream) {
  OK(cudaMemcpyAsync(other.copy(), other.at(), sizeof(std::uint64_t), cudaMemcpyDefault, stream));
  if (stream == cudaStreamLegacy) other.open();
  OK(cudaStreamSynchronize(stream));
  return *other.copy();
}

TEST_CASE("the null stream does not order the work of several threads") {
  Other other(nullptr);
  CHECK(read_after(other, nullptr) == 0);  // The mistake: it counted on 7.
}

TEST_CASE("the legacy stream waits for those of threads, and they for it") {
  Other other(nullptr);
  CHECK(read_after(other, cudaStreamLegacy) == 7);
  Other legacy(cudaStreamLegacy);
  CHECK(cudaStreamQuery(nullptr) == cudaSuccess);
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventRecord(event, nullptr));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  legacy.open();
  OK(cudaEventSynchronize(event));
  CHECK(read_after(legacy, nullptr) == 7);
  OK(cudaEventDestroy(event));
}

TEST_CASE("a null stream can be captured, which the legacy one can't") {
  CHECK(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed) ==
        cudaErrorStreamCaptureUnsupported);
  OK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed));
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  OK(cudaStreamIsCapturing(cudaStreamPerThread, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(nullptr, &graph));
  OK(cudaGraphDestroy(graph));
  cudaGetLastError();
}

/// The driver's cuMemsetD32Async, as `flags` ask for it.
auto memset_by(unsigned long long flags) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  OK(cudaGetDriverEntryPointByVersion("cuMemsetD32Async", &found, 12010, flags, &result));
  REQUIRE(result == cudaDriverEntryPointSuccess);
  return reinterpret_cast<decltype(&cuMemsetD32Async)>(found);
}

TEST_CASE("the driver's functions are those for the stream that is asked for") {
  std::uint32_t* word = nullptr;
  OK(cudaMalloc(reinterpret_cast<void**>(&word), sizeof *word));
  Other other(nullptr);
  const auto at = reinterpret_cast<CUdeviceptr>(word);
  for (const auto flags : {cudaEnableDefault, cudaEnablePerThreadDefaultStream}) {
    CAPTURE(flags);
    CHECK(memset_by(flags)(at, 5, 1, nullptr) == CUDA_SUCCESS);
    OK(cudaStreamSynchronize(nullptr));  // It does not wait for the other thread's kernel.
  }
  CHECK(memset_by(cudaEnableLegacyStream)(at, 6, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady);
  other.open();
  OK(cudaStreamSynchronize(cudaStreamLegacy));
  OK(cudaFree(word));
}

}  // namespace
}  // namespace tutti
