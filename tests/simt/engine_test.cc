// The engine: kernels get the values that CUDA promises, blocks progress independently of each
// other, and a seed changes the order of threads.
#include "simt/language.h"
// The language comes first.
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"

namespace tutti {
namespace {

using simt::set_seed;

/// Runs a kernel to its end on device 0.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const char* name, dim3 grid, dim3 block,
            std::size_t shared_bytes, Arguments... arguments) {
  void* list[] = {&arguments...};
  const void* handle = simt::kernel_handle(kernel, name);
  REQUIRE(cudaLaunchKernel(handle, grid, block, list, shared_bytes, nullptr) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}
#define LAUNCH(kernel, ...) launch(kernel, #kernel, __VA_ARGS__)

/// Sum of `count` numbers by shuffles, then by shared memory; parity by votes.
__global__ void sum_all(const int* in, int* out, int count) {
  auto* of_warp = static_cast<int*>(simt::current->dynamic_shared);
  __shared__ int even;
  if (threadIdx.x == 0) even = 0;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int value = static_cast<int>(threadIdx.x) < count ? in[threadIdx.x] : 0;
  const unsigned ballot = __ballot_sync(~0u, value % 2 == 0 ? 1 : 0);
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(~0u, value, distance);
  }
  if (lane == 0) {
    of_warp[warp] = value;
    atomicAdd(&even, __builtin_popcount(ballot));
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += of_warp[w];
    out[0] = sum;
    out[1] = even;
  }
  const int thirds = __syncthreads_count(threadIdx.x % 3 == 0 ? 1 : 0);
  if (threadIdx.x == 32) out[2] = thirds;
}

TEST_CASE("shuffles, votes, shared memory, atomics and barriers") {
  for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
    set_seed(seed);
    for (const unsigned threads : {64u, 96u, 256u, 1024u}) {
      std::vector<int> numbers(threads);
      std::iota(numbers.begin(), numbers.end(), -17);
      const int count = static_cast<int>(threads) - 5;
      int sum = 0, even = 5;
      for (int i = 0; i < count; ++i) {
        sum += numbers[static_cast<std::size_t>(i)];
        even += numbers[static_cast<std::size_t>(i)] % 2 == 0 ? 1 : 0;
      }
      int out[3] = {};
      const int* in = numbers.data();
      LAUNCH(sum_all, dim3(1), dim3(threads), 32 * sizeof(int), in, static_cast<int*>(out), count);
      INFO("seed " << seed << ", " << threads << " threads");
      CHECK(out[0] == sum);
      CHECK(out[1] == even);
      CHECK(out[2] == static_cast<int>((threads + 2) / 3));
    }
  }
}

__global__ void shuffles(int* up, int* down, int* index, unsigned* match) {
  const int lane = static_cast<int>(threadIdx.x);
  up[lane] = __shfl_up_sync(~0u, lane, 3, 16);
  down[lane] = __shfl_down_sync(~0u, lane, 3, 16);
  index[lane] = __shfl_sync(~0u, lane, 5, 8);
  match[lane] = __match_any_sync(~0u, lane % 4);
}

TEST_CASE("shuffles keep to their segments") {
  int up[32], down[32], index[32];
  unsigned match[32];
  LAUNCH(shuffles, dim3(1), dim3(32), 0, static_cast<int*>(up), static_cast<int*>(down),
         static_cast<int*>(index), static_cast<unsigned*>(match));
  for (int lane = 0; lane < 32; ++lane) {
    INFO("lane " << lane);
    CHECK(up[lane] == (lane % 16 < 3 ? lane : lane - 3));
    CHECK(down[lane] == (lane % 16 > 12 ? lane : lane + 3));
    CHECK(index[lane] == lane / 8 * 8 + 5);
    CHECK(match[lane] == 0x11111111u << (lane % 4));
  }
}

/// A token goes round: block b waits for b, and passes b + 1 on.
__global__ void relay(std::uint64_t* token, std::uint64_t* visits) {
  const std::uint64_t blocks = gridDim.x;
  for (std::uint64_t round = 0; round < 3; ++round) {
    const std::uint64_t turn = round * blocks + blockIdx.x;
    if (threadIdx.x == 0) {
      while (cuda::load_acquire(token) != turn) continue;
      ++*visits;
      cuda::store_release(token, turn + 1);
    }
    __syncthreads();
  }
}

TEST_CASE("blocks wait for each other without hanging") {
  for (const std::uint64_t seed : {0, 5, 6}) {
    set_seed(seed);
    alignas(64) std::uint64_t token = 0;
    alignas(64) std::uint64_t visits = 0;
    LAUNCH(relay, dim3(16), dim3(32), 0, &token, &visits);
    CHECK(visits == 48);
  }
}

__global__ void coordinates(unsigned* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

TEST_CASE("every thread of every block runs once, and knows where it is") {
  const dim3 grid(3, 2, 2), block(4, 3, 2);
  std::vector<unsigned> out(12 * 24, ~0u);
  LAUNCH(coordinates, grid, block, 0, out.data());
  for (unsigned i = 0; i < out.size(); ++i) CHECK(out[i] == i / 24 * 1000 + i % 24);
}

/// Threads line up in the order they come.
__global__ void line_up(unsigned* next, unsigned* order) {
  order[atomicAdd(next, 1u)] = threadIdx.x;
}

TEST_CASE("a seed gives an order of threads, another seed another") {
  const auto order_of = [](std::uint64_t seed) {
    set_seed(seed);
    unsigned next = 0;
    std::vector<unsigned> order(64, ~0u);
    LAUNCH(line_up, dim3(1), dim3(64), 0, &next, order.data());
    CHECK(std::set<unsigned>(order.begin(), order.end()).size() == 64);
    return order;
  };
  std::vector<unsigned> in_order(64);
  std::iota(in_order.begin(), in_order.end(), 0u);
  CHECK(order_of(0) == in_order);
  std::set<std::vector<unsigned>> orders;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) orders.insert(order_of(seed));
  CHECK(orders.size() == 5);
  set_seed(0);
}

__global__ void read_shared(unsigned* static_value, unsigned* dynamic_value) {
  *dynamic_value = *static_cast<unsigned*>(simt::current->dynamic_shared);
  *static_value = 0;
}

TEST_CASE("dynamic shared memory is not zero at the start, as on a GPU") {
  unsigned first = 1, dynamic_value = 0;
  LAUNCH(read_shared, dim3(1), dim3(1), 64, &first, &dynamic_value);
  CHECK(dynamic_value == 0xabababab);
}

}  // namespace
}  // namespace tutti
