// Handles of destroyed streams, events and graphs: the next one has them, and until then they are
// errors. Code that remembers a stream by its handle takes another one for it; its id tells.
#include "simt/language.h"
// The language comes first.
#include "support/catch.h"

namespace tutti {
namespace {

#define OK(...) REQUIRE((__VA_ARGS__) == cudaSuccess)

__global__ void wait_then_set(const std::uint64_t* gate, std::uint64_t* at) {
  if (threadIdx.x != 0) return;
  while (cuda::load_acquire(gate) == 0) continue;
  cuda::store_release(at, 7);
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}
std::uint64_t by_handle(cudaStream_t stream) { return reinterpret_cast<std::uintptr_t>(stream); }
std::uint64_t by_id(cudaStream_t stream) {
  unsigned long long id = 0;
  OK(cudaStreamGetId(stream, &id));
  return id;
}

/// Puts a call behind the one before, if that was on another stream: on the same it is anyhow.
class Order {
 public:
  explicit Order(std::uint64_t (*key)(cudaStream_t)) : key_(key) {
    OK(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
  }
  ~Order() { cudaEventDestroy(done_); }
  Order(const Order&) = delete;
  Order& operator=(const Order&) = delete;

  void enter(cudaStream_t stream) const {
    if (key_(stream) != last_) OK(cudaStreamWaitEvent(stream, done_, 0));
  }
  void leave(cudaStream_t stream) {
    last_ = key_(stream);
    OK(cudaEventRecord(done_, stream));
  }

 private:
  std::uint64_t (*key_)(cudaStream_t);
  cudaEvent_t done_ = nullptr;
  std::uint64_t last_ = 0;
};

/// What a copy reads on a stream that is made after another one was destroyed, whose kernel writes
/// 7: with an order between both. 0: the copy did not wait.
std::uint64_t read_in_order(std::uint64_t (*key)(cudaStream_t)) {
  Order order(key);
  std::uint64_t *words = nullptr, *at = nullptr;
  OK(cudaHostAlloc(reinterpret_cast<void**>(&words), 2 * sizeof *words, 0));
  OK(cudaMalloc(reinterpret_cast<void**>(&at), sizeof *at));
  OK(cudaMemset(at, 0, sizeof *at));
  words[0] = 0;
  cudaFuncAttributes attributes;  // To load a kernel waits for the device.
  OK(cudaFuncGetAttributes(&attributes, TUTTI_KERNEL_HANDLE(wait_then_set)));

  const cudaStream_t first = new_stream();
  const std::uint64_t* gate = words;
  void* list[] = {&gate, &at};
  OK(cudaLaunchKernel(TUTTI_KERNEL_HANDLE(wait_then_set), dim3(1), dim3(32), list, 0, first));
  order.leave(first);
  OK(cudaStreamDestroy(first));
  const cudaStream_t second = new_stream();
  order.enter(second);
  OK(cudaMemcpyAsync(words + 1, at, sizeof *at, cudaMemcpyDefault, second));
  // Where nothing holds it up, the copy is made before the kernel may write.
  const bool in_order = by_handle(second) != by_handle(first) || key == &by_id;
  if (!in_order) OK(cudaStreamSynchronize(second));
  cuda::store_release(words, 1);
  OK(cudaStreamSynchronize(second));
  const std::uint64_t read = words[1];
  OK(cudaStreamDestroy(second));
  OK(cudaFree(at));
  OK(cudaFreeHost(words));
  return read;
}

TEST_CASE("a new stream has the handle of a destroyed one, and an id of its own") {
  CHECK(read_in_order(&by_id) == 7);
  CHECK(read_in_order(&by_handle) == 0);  // The mistake: it takes both for one.
  simt::settings().reuse_handles = false;
  CHECK(read_in_order(&by_handle) == 7);  // It is not seen where handles do not come back.
  simt::settings().reuse_handles = true;
}

TEST_CASE("handles of what was destroyed are errors until they come back") {
  cudaEvent_t event = nullptr, next = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventDestroy(event));
  const cudaStream_t stream = new_stream();
  CHECK(cudaEventQuery(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventSynchronize(event) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  OK(cudaEventCreate(&next));
  CHECK(next == event);
  OK(cudaEventRecord(event, stream));  // Another event's, now.
  OK(cudaEventDestroy(next));

  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr, other = nullptr;
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphExecDestroy(executable));
  CHECK(cudaGraphLaunch(executable, stream) == cudaErrorInvalidValue);
  OK(cudaGraphInstantiate(&other, graph, 0));
  CHECK(other == executable);
  OK(cudaGraphExecDestroy(other));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamDestroy(stream));
  CHECK(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
}

TEST_CASE("what a destroyed event recorded is still waited for") {
  std::uint64_t* words = nullptr;
  OK(cudaHostAlloc(reinterpret_cast<void**>(&words), 2 * sizeof *words, 0));
  words[0] = words[1] = 0;
  const cudaStream_t first = new_stream(), second = new_stream();
  const std::uint64_t* gate = words;
  std::uint64_t* at = words + 1;
  void* list[] = {&gate, &at};
  OK(cudaLaunchKernel(TUTTI_KERNEL_HANDLE(wait_then_set), dim3(1), dim3(32), list, 0, first));
  cudaEvent_t event = nullptr;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  OK(cudaEventRecord(event, first));
  OK(cudaStreamWaitEvent(second, event, 0));
  OK(cudaEventDestroy(event));
  CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
  cuda::store_release(words, 1);
  OK(cudaStreamSynchronize(second));
  CHECK(words[1] == 7);
  OK(cudaStreamDestroy(first));
  OK(cudaStreamDestroy(second));
  OK(cudaFreeHost(words));
}

}  // namespace
}  // namespace tutti
