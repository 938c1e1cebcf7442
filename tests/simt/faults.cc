// File: simt/faults.cc: kernels, and calls of the runtime, that are wrong in a way of their own;
// the engine has to say how. The argument is the case; faults_test.sh has what must be said.
#include "simt/language.h"
// The language comes first.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/driver/driver.h"
#include "simt/runtime.h"

namespace {

using tutti::cuda::load;
using tutti::cuda::load_acquire;
using tutti::cuda::store;
using tutti::cuda::store_release;

__global__ void fault(int kind, std::uint64_t* at) {
  switch (kind) {
    case 0:  // One thread of a warp returns before a barrier; the others wait for it.
      if (threadIdx.x == 7) return;
      __syncthreads();
      break;
    case 1:  // Halves of a block at different barriers.
      if (threadIdx.x < 32) {
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case 2:  // A lane that is not in the mask.
      __shfl_sync(0xffffu, 1, 0);
      break;
    case 3:  // Lanes of a warp in different collectives.
      if (threadIdx.x % 2 == 0) {
        __ballot_sync(~0u, 1);
      } else {
        __shfl_sync(~0u, 1, 0);
      }
      break;
    case 4:  // Half of a warp waits for the other, which waits at the barrier.
      if (threadIdx.x < 16) __syncwarp();
      if (threadIdx.x != 63) __syncthreads();
      if (threadIdx.x == 63) __syncwarp(1u << 31 | 1u << 30);
      break;
    case 5:  // Nobody ever sets it.
      while (load_acquire(at) != 12345) continue;
      break;
    case 6:  // Another device's memory.
    case 8:  // The device's own, mapped, but to which nobody was given access.
      if (threadIdx.x + blockIdx.x == 0) store(at, load<std::uint64_t>(at));
      break;
    case 7: __trap();
    default: break;
  }
}

constexpr const char* kCases[] = {"left", "places", "mask", "mixed", "deadlock",
                                  "hang", "peer",   "trap", "mapped"};

/// Memory of device 0 that the driver mapped.
void* mapped() {
  using namespace tutti::exec;
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  static auto mapping = CudaMapping::reserve(kBytes);
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = location_of(0);
  CUmemGenericAllocationHandle handle = 0;
  const bool made = cuda_driver().create(&handle, kBytes, &wanted, 0) == CUDA_SUCCESS && mapping &&
                    mapping->add(handle, kBytes);
  return made ? mapping->data() : nullptr;
}

// Calls of the runtime: in all of them one kernel waits for a second, which the host launches too
// late, or where the device never gets to it.

__global__ void wait_for(std::uint64_t* at, std::uint64_t value) {
  if (threadIdx.x + blockIdx.x != 0) return;
  while (load_acquire(at) < value) continue;
}
__global__ void set(std::uint64_t* at, std::uint64_t value) {
  if (threadIdx.x + blockIdx.x == 0) store_release(at, value);
}

const void* wait_kernel() { return TUTTI_KERNEL_HANDLE(wait_for); }
const void* set_kernel() { return TUTTI_KERNEL_HANDLE(set); }

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

/// A word of a device's memory, and two kernels, which are loaded: one waits for what one sets.
class Pair {
 public:
  Pair() {
    cudaFuncAttributes attributes;
    for (const void* kernel : {wait_kernel(), set_kernel()})
      cudaFuncGetAttributes(&attributes, kernel);
    void* memory = nullptr;
    cudaMalloc(&memory, sizeof *at_);
    cudaMemset(memory, 0, sizeof *at_);
    at_ = static_cast<std::uint64_t*>(memory);
  }
  std::uint64_t* at() const { return at_; }
  void wait(cudaStream_t stream) { launch(wait_kernel(), stream, 1); }
  void set(cudaStream_t stream) { launch(set_kernel(), stream, 1); }
  /// What nobody waits for.
  void touch(cudaStream_t stream) { launch(set_kernel(), stream, 0); }

 private:
  void launch(const void* kernel, cudaStream_t stream, std::uint64_t value) {
    void* list[] = {&at_, &value};
    cudaLaunchKernel(kernel, dim3(1), dim3(32), list, 0, stream);
  }
  std::uint64_t* at_ = nullptr;
};

/// What the host does between the two.
void between(void (*call)(Pair& pair, cudaStream_t stream)) {
  Pair pair;
  const cudaStream_t waiting = new_stream(), setting = new_stream();
  pair.wait(waiting);
  call(pair, waiting);
  pair.set(setting);
  cudaStreamSynchronize(waiting);
}

void copy_away(Pair& pair, cudaStream_t stream, void* to) {
  cudaMemcpyAsync(to, pair.at(), sizeof(std::uint64_t), cudaMemcpyDeviceToHost, stream);
}
void pageable_copy() {
  between([](Pair& pair, cudaStream_t stream) {
    static std::uint64_t word;
    copy_away(pair, stream, &word);
  });
}
void pinned_copy() {
  static void* word = nullptr;
  cudaMallocHost(&word, sizeof(std::uint64_t));
  between([](Pair& pair, cudaStream_t stream) { copy_away(pair, stream, word); });
}
void copy_of(std::size_t bytes) {
  static std::vector<char> source;
  static void* target = nullptr;
  source.resize(bytes);
  cudaMalloc(&target, bytes);
  between([](Pair&, cudaStream_t stream) {
    cudaMemcpyAsync(target, source.data(), source.size(), cudaMemcpyHostToDevice, stream);
  });
}
void small_source() { copy_of(std::size_t{64} << 10); }
void large_source() { copy_of((std::size_t{64} << 10) + 1); }
void unregister() {
  static char page[4096];
  cudaHostRegister(page, sizeof page, 0);
  between([](Pair&, cudaStream_t) { cudaHostUnregister(page); });
}
void free_memory() {
  static void* other = nullptr;
  cudaMalloc(&other, 64);
  between([](Pair&, cudaStream_t) { cudaFree(other); });
}

/// Another thread frees memory while the host launches.
void free_aside() {
  static void* other = nullptr;
  cudaMalloc(&other, 64);
  static std::thread freeing;
  between([](Pair&, cudaStream_t) {
    freeing = std::thread([] { cudaFree(other); });
    std::mutex& launching = tutti::simt::launching(0);
    while (tutti::simt::settings().free_locks && launching.try_lock()) {
      launching.unlock();
      std::this_thread::yield();
    }
  });
  freeing.join();
}

/// The ninth stream: where streams are dealt to eight queues, one that shares the first one's.
void ninth_stream(bool urgent) {
  Pair pair;
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(new_stream());
  cudaStream_t setting = nullptr;
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  cudaStreamCreateWithPriority(&setting, cudaStreamNonBlocking, urgent ? greatest : least);
  pair.wait(streams[0]);
  pair.set(setting);
  cudaStreamSynchronize(streams[0]);
}
void shared_queue() { ninth_stream(false); }
void own_queue() { ninth_stream(true); }
void many_launches() {
  between([](Pair& pair, cudaStream_t stream) {
    for (int i = 0; i < 1100; ++i) pair.touch(stream);
  });
}
/// Two graphs of 600 kernels, one behind the other.
void large_graphs() {
  static cudaGraphExec_t executable = nullptr;
  between([](Pair& pair, cudaStream_t stream) {
    const cudaStream_t captured = new_stream();
    cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal);
    for (int i = 0; i < 600; ++i) pair.touch(captured);
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(captured, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    for (int i = 0; i < 3; ++i) cudaGraphLaunch(executable, stream);
  });
}

// Kernels whose blocks wait for each other.

__global__ void meet(std::uint64_t* arrived, std::uint64_t blocks) {
  if (threadIdx.x != 0) return;
  atomicAdd(arrived, std::uint64_t{1});
  while (load_acquire(arrived) < blocks) continue;
}

/// So many blocks of 256 threads on each multiprocessor, and some more.
void meet_of(int on_each, int more) {
  int count = 0;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
  std::uint64_t blocks = static_cast<std::uint64_t>(on_each * count + more);
  void* arrived = nullptr;
  cudaMalloc(&arrived, sizeof blocks);
  cudaMemset(arrived, 0, sizeof blocks);
  void* list[] = {&arrived, &blocks};
  cudaLaunchKernel(TUTTI_KERNEL_HANDLE(meet), dim3(static_cast<unsigned>(blocks)), dim3(256), list,
                   0, nullptr);
  cudaDeviceSynchronize();
}
int resident() {
  int blocks = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, TUTTI_KERNEL_HANDLE(meet), 256, 0);
  return blocks;
}
void all_resident() { meet_of(resident(), 0); }
void one_more() { meet_of(resident(), 1); }
/// As many as there is room for by threads alone, not by registers.
void by_threads() {
  int threads = 0;
  cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerMultiProcessor, 0);
  meet_of(threads / 256, 0);
}

/// Kernels of two processes on one device, each of which waits for the other.
void two_processes() {
  constexpr std::size_t kBytes = 4096;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t child = fork();
  std::uint64_t blocks = 2;
  void* list[] = {&memory, &blocks};
  cudaLaunchKernel(TUTTI_KERNEL_HANDLE(meet), dim3(1), dim3(32), list, 0, nullptr);
  cudaDeviceSynchronize();
  if (child == 0) _exit(0);
  int status = 0;
  waitpid(child, &status, 0);
  if (status != 0) _exit(WEXITSTATUS(status));
}

constexpr struct {
  const char* name;
  void (*run)();
} kCalls[] = {
    {"pageable", pageable_copy},      {"pinned", pinned_copy},
    {"small_source", small_source},   {"large_source", large_source},
    {"unregister", unregister},       {"free", free_memory},
    {"free_aside", free_aside},       {"shared_queue", shared_queue},
    {"own_queue", own_queue},         {"launches", many_launches},
    {"graphs", large_graphs},         {"resident", all_resident},
    {"one_more", one_more},           {"by_threads", by_threads},
    {"two_processes", two_processes},
};

}  // namespace

int main(int count, char** words) {
  for (int kind = 0; kind < static_cast<int>(std::size(kCases)); ++kind) {
    if (count < 2 || std::strcmp(words[1], kCases[kind]) != 0) continue;
    void* memory = nullptr;
    cudaSetDevice(kind == 6 ? 1 : 0);
    cudaMalloc(&memory, 64);
    cudaMemset(memory, 0, 64);
    cudaSetDevice(0);
    if (kind == 8) memory = mapped();
    auto* at = static_cast<std::uint64_t*>(memory);
    void* list[] = {&kind, &at};
    cudaLaunchKernel(TUTTI_KERNEL_HANDLE(fault), dim3(2), dim3(64), list, 0, nullptr);
    cudaDeviceSynchronize();
    return 0;
  }
  for (const auto& call : kCalls) {
    if (count < 2 || std::strcmp(words[1], call.name) != 0) continue;
    call.run();
    return 0;
  }
  std::fputs("usage: simt_faults CASE, of those that faults_test.sh has\n", stderr);
  return 2;
}
