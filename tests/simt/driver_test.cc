// The driver is a machine that streams, threads and kernels share: what keeps launches waiting, and
// what does not. What never ends because of it, faults.cc has.
#include "simt/language.h"
// The language comes first.
#include <future>
#include <thread>

#include "simt/runtime.h"
#include "support/catch.h"

namespace tutti {
namespace {

#define OK(...) REQUIRE((__VA_ARGS__) == cudaSuccess)

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

/// Keeps a stream busy until it is opened.
class Gate {
 public:
  void close(cudaStream_t stream) {
    OK(cudaLaunchHostFunc(
        stream, [](void* gate) { static_cast<Gate*>(gate)->opened_.get_future().wait(); }, this));
  }
  void open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

/// Returns when a thread is in a call that keeps others from launching on device 0, for good.
void until_launches_wait() {
  while (simt::launching(0).try_lock()) {
    simt::launching(0).unlock();
    std::this_thread::yield();
  }
}

TEST_CASE("a copy to pageable memory keeps other threads from launching on its device alone") {
  const cudaStream_t busy = new_stream(), other = new_stream();
  Gate gate;
  gate.close(busy);
  char from = 7, to = 0;
  std::thread copying([&] { cudaMemcpyAsync(&to, &from, 1, cudaMemcpyDefault, busy); });
  until_launches_wait();
  std::promise<bool> launched;
  std::thread launching([&] {
    const bool good = cudaLaunchHostFunc(
                          other, [](void*) {}, nullptr) == cudaSuccess;
    launched.set_value(good && to == 7);
  });
  OK(cudaSetDevice(1));
  void* elsewhere = nullptr;
  OK(cudaMalloc(&elsewhere, 8));
  OK(cudaMemset(elsewhere, 0, 8));
  OK(cudaFree(elsewhere));
  OK(cudaSetDevice(0));
  CHECK(cudaStreamQuery(other) == cudaSuccess);
  gate.open();
  CHECK(launched.get_future().get());
  copying.join();
  launching.join();
  for (const cudaStream_t stream : {busy, other}) OK(cudaStreamDestroy(stream));
}

TEST_CASE("a stream has the priority that was asked for, as far as there are such") {
  int least = 1, greatest = 1;
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(least == 0);
  CHECK(greatest == -5);
  const int cases[][2] = {{0, 0}, {-3, -3}, {-5, -5}, {-9, -5}, {4, 0}};
  for (const auto& [asked, given] : cases) {
    cudaStream_t stream = nullptr;
    int priority = 1;
    OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, asked));
    OK(cudaStreamGetPriority(stream, &priority));
    CHECK(priority == given);
    OK(cudaStreamDestroy(stream));
  }
}

}  // namespace
}  // namespace tutti
