// What CUDA's language has, for simulated GPUs (simt/nvcc): each check is a kernel or is checked by
// one, on every device that there is. Prints "device N: right" for each.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

#include "language.cuh"

#define REQUIRE(what) require((what), #what, __LINE__)

namespace {

int device = 0;

void require(bool good, const char* what, int line) {
  if (good) return;
  std::printf("device %d, line %d: wrong: %s (%s)\n", device, line, what,
              cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}

/// One number in memory that host and device see.
template <class T>
struct Shared {
  Shared() { REQUIRE(cudaMallocHost(&at, sizeof(T)) == cudaSuccess); }
  ~Shared() { cudaFreeHost(at); }
  T* at = nullptr;
};

// Kernels that are templates, with deduced and explicit arguments, with defaults and without names.
template <typename T, int kScale = 2, typename = std::enable_if_t<(sizeof(T) > 1)>>
__global__ void __launch_bounds__(256, 1) scale(T* data, size_t count, const T = T(0)) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    data[i] *= kScale;
}
__global__ void scale(char* data, int count) {  // An overload that is no template.
  if (threadIdx.x < unsigned(count)) data[threadIdx.x] += 1;
}
template <class... Terms>
__global__ void sum_of(double* out, Terms... terms) {
  *out = (terms + ... + 0.0);
}
__global__ void add(int n, const float* __restrict__ a, const float* __restrict__ b, float* c) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = __ldg(a + i) + b[i];
}
extern "C" __global__ void fill(unsigned* data, unsigned value) {
  data[(blockIdx.y * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x] = value;
}
using Fill = void (*)(unsigned*, unsigned);

// Variables of devices: each device has its own.
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ unsigned long long counter = 40, other_counter{2};
static __device__ int grid_of_numbers[2][3];
__device__ float twice(float x) { return 2 * x; }
__device__ float (*chosen)(float) = twice;
__device__ const int kFixed = 17;
__managed__ int managed = 3;

__global__ void use_variables(float* out) {
  const unsigned i = threadIdx.x;
  atomicAdd(&counter, 1);
  if (i < 6) grid_of_numbers[i / 3][i % 3] = int(i) * kFixed;
  if (i < 4) out[i] = chosen(weights[i]);
  if (i == 0) managed += 1;
}
__global__ void check_variables(int* wrong, unsigned long long expected) {
  if (counter != expected || other_counter != 2) atomicAdd(wrong, 1);
  for (int i = 0; i < 6; ++i)
    if (grid_of_numbers[i / 3][i % 3] != i * kFixed) atomicAdd(wrong, 1);
}

// Shared memory.
extern __shared__ float of_the_file[];
template <class T>
__global__ void reverse(T* data) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* const values = reinterpret_cast<T*>(bytes);
  __shared__ T first, tile[4][32];
  values[threadIdx.x] = data[threadIdx.x];
  tile[threadIdx.x / 32][threadIdx.x % 32] = data[threadIdx.x];
  if (threadIdx.x == 0) first = data[0];
  __syncthreads();
  const T from_tile = tile[threadIdx.x / 32][threadIdx.x % 32];
  data[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x] + first + (from_tile - from_tile);
}
__global__ void sum_block(const float* in, float* out) {
  of_the_file[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) of_the_file[threadIdx.x] += of_the_file[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, of_the_file[0]);
}

// Warps, votes, bits.
__global__ void warps(int* wrong) {
  const unsigned all = 0xffffffff, lane = threadIdx.x % warpSize;
  int sum = int(lane);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(all, sum, lanes);
  bool good = sum == 496 && __shfl_sync(all, lane, 5) == 5 && __reduce_max_sync(all, lane) == 31;
  good &= __shfl_down_sync(all, 1.5 * lane, 1) == 1.5 * (lane == 31 ? 31 : lane + 1);
  good &= __ballot_sync(all, lane % 2) == 0xaaaaaaaau && __any_sync(all, lane == 3);
  good &= __popc(0xf0f0u) == 8 && __clz(1) == 31 && __ffs(8) == 4 && __brev(1u) == 0x80000000u;
  good &= __umulhi(0x80000000u, 6) == 3 && __float_as_int(1.0f) == 0x3f800000;
  good &= min(3, 5u) == 3 && max(2.5f, 1.0f) == 2.5f && fabsf(rsqrtf(4.0f) - 0.5f) < 1e-6f;
  good &= __syncthreads_count(lane == 0) == int(blockDim.x / 32) && __syncthreads_or(0) == 0;
  const long long before = clock64();
  good &= clock64() >= before;
  if (!good) atomicAdd(wrong, 1);
}

// A lock that all threads of a block take, and flags between blocks.
__global__ void lock(int* mutex, int* total, volatile int* flag) {
  while (atomicCAS(mutex, 0, 1) != 0)
    ;
  *total += 1;
  __threadfence();
  atomicExch(mutex, 0);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    while (*flag == 0)
      ;
  } else if (blockIdx.x == 1 && threadIdx.x == 0) {
    __threadfence();
    *flag = 1;
  }
}

// 16-bit floats.
__global__ void halves(int* wrong, __half* sum, __nv_bfloat162* pair) {
  const __half a = __float2half(1.5f), b = 2.0f;
  bool good = __half2float(a * b + a) == 4.5f && __hgt(b, a) && float(__hfma(a, b, b)) == 5.0f;
  const __nv_bfloat16 c = __float2bfloat16(3.0f);
  good &=
      __bfloat162float(__hmax(c, __float2bfloat16(1.0f))) == 3.0f && float(hsqrt(b * b)) == 2.0f;
  const __half2 two = __halves2half2(a, b);
  good &= __low2float(__hadd2(two, two)) == 3.0f && float(__shfl_sync(~0u, two, 3).y) == 2.0f;
  atomicAdd(sum, __float2half(1.0f));
  atomicAdd(pair, __nv_bfloat162(c, c));
  if (!good) atomicAdd(wrong, 1);
}

// What is different on the two sides.
__host__ __device__ int side() {
#ifdef __CUDA_ARCH__
  return __CUDA_ARCH__;
#else
  return -1;
#endif
}
__device__ int only_with_architecture() {
  int value = 0;
#if __CUDA_ARCH__ >= 700
  value = 7;
#endif
  return value;
}
__global__ void sides(int* out, Numbers numbers) {
  out[0] = side();
  out[1] = only_with_architecture();
  out[2] = numbers.sum() + numbers[1];
  const auto squared = [] __device__(int x) { return x * x; };
  out[3] = squared(5);
}

void kernels() {
  Shared<float[512]> data;
  float* const at = *data.at;
  for (int i = 0; i < 512; ++i) at[i] = float(i);
  scale<<<2, 128>>>(at, 512);
  scale<float, 3><<<dim3(2), 128, 0, cudaStreamLegacy>>>(at, 512, 0.0f);
  void (*by_pointer)(float*, size_t, float) = scale<float, 5>;
  by_pointer<<<1, 32>>>(at, 512, 0);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && at[511] == 511.0f * 30);
  Shared<double> sum;
  sum_of<<<1, 1>>>(sum.at, 1, 2.5f, 4.0);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && *sum.at == 7.5);
  Shared<char[4]> letters;
  for (char& letter : *letters.at) letter = 'a';
  scale<<<1, 32>>>(*letters.at, 4);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && (*letters.at)[3] == 'b');
  add<<<(512 + 127) / 128, 128>>>(512, at, at, at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && at[511] == 511.0f * 60);

  // By address: as the functions of the runtime take kernels.
  Shared<unsigned[256]> words;
  unsigned* word = *words.at;
  unsigned value = 9;
  const Fill table[] = {fill};
  table[0]<<<dim3(2, 2), 64>>>(word, 5);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[255] == 5);
  void* arguments[] = {&word, &value};
  REQUIRE(cudaLaunchKernel((void*)fill, 4, 64, arguments, 0, nullptr) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[255] == 9);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4);
  config.blockDim = dim3(64);
  REQUIRE(cudaLaunchKernelEx(&config, fill, word, 11) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[0] == 11);
  value = 12;
  REQUIRE(cudaLaunchKernelExC(&config, (const void*)fill, arguments) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[0] == 12);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {2, 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  REQUIRE(cudaLaunchKernelEx(&config, fill, word, 13) == cudaErrorNotSupported);
  REQUIRE(cudaGetLastError() == cudaErrorNotSupported);
  cudaFuncAttributes attributes;
  REQUIRE(cudaFuncGetAttributes(&attributes, scale<double>) == cudaSuccess);
  REQUIRE(attributes.maxThreadsPerBlock == 256);
  int blocks = 0, least = 0, threads = 0;
  REQUIRE(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 128, 0) == cudaSuccess);
  REQUIRE(blocks > 0);
  REQUIRE(cudaOccupancyMaxPotentialBlockSize(&least, &threads, add) == cudaSuccess && threads > 0);
  scale<float><<<1, 512>>>(at, 512);
  REQUIRE(cudaGetLastError() == cudaErrorLaunchOutOfResources);
  // More blocks than a process can have threads.
  Shared<unsigned long long> many;
  *many.at = 0;
  const unsigned blocks_of_many = device == 0 ? 33000 : 100;
  count<<<blocks_of_many, 1>>>(many.at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && *many.at == blocks_of_many);
}

void variables() {
  Shared<float[4]> out;
  Shared<int> wrong;
  *wrong.at = 0;
  use_variables<<<1, 64>>>(*out.at);
  check_variables<<<1, 1>>>(wrong.at, 104);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && *wrong.at == 0 && (*out.at)[3] == 8);
  REQUIRE(managed == 4 + device);
  const float others[2] = {30, 40};
  REQUIRE(cudaMemcpyToSymbol(weights, others, sizeof others, 2 * sizeof(float)) == cudaSuccess);
  use_variables<<<1, 4>>>(*out.at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && (*out.at)[3] == 80 && (*out.at)[1] == 4);
  managed -= 1;
  unsigned long long counted = 0;
  REQUIRE(cudaMemcpyFromSymbol(&counted, counter, sizeof counted) == cudaSuccess && counted == 108);
  void* address = nullptr;
  std::size_t bytes = 0;
  REQUIRE(cudaGetSymbolAddress(&address, grid_of_numbers) == cudaSuccess);
  REQUIRE(cudaGetSymbolSize(&bytes, grid_of_numbers) == cudaSuccess && bytes == 6 * sizeof(int));
  int numbers[6];
  REQUIRE(cudaMemcpy(numbers, address, sizeof numbers, cudaMemcpyDeviceToHost) == cudaSuccess);
  REQUIRE(numbers[5] == 85);
  cudaPointerAttributes attributes;
  REQUIRE(cudaPointerGetAttributes(&attributes, address) == cudaSuccess);
  REQUIRE(attributes.device == device && attributes.type == cudaMemoryTypeDevice);
  REQUIRE(cudaGetSymbolAddress(&address, numbers) == cudaErrorInvalidSymbol);
  REQUIRE(cudaGetLastError() == cudaErrorInvalidSymbol);
}

void shared_memory() {
  Shared<double[128]> data;
  for (int i = 0; i < 128; ++i) (*data.at)[i] = i + 1;
  reverse<<<1, 128, 128 * sizeof(double)>>>(*data.at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && (*data.at)[0] == 129 && (*data.at)[127] == 2);
  Shared<float[1024]> in;
  Shared<float> sum;
  *sum.at = 0;
  for (float& one : *in.at) one = 1;
  sum_block<<<8, 128, 128 * sizeof(float)>>>(*in.at, sum.at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && *sum.at == 1024);
}

void threads() {
  Shared<int[4]> words;
  int* const word = *words.at;
  for (int i = 0; i < 4; ++i) word[i] = 0;
  warps<<<2, 64>>>(word);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[0] == 0);
  lock<<<2, 48>>>(word + 1, word + 2, word + 3);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[2] == 96);
  Shared<__half> half_sum;
  Shared<__nv_bfloat162> pair;
  *half_sum.at = __float2half(0.0f);
  *pair.at = __nv_bfloat162(__float2bfloat16(0.0f), __float2bfloat16(0.0f));
  halves<<<1, 32>>>(word, half_sum.at, pair.at);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && word[0] == 0);
  REQUIRE(__half2float(*half_sum.at) == 32 && __bfloat162float(pair.at->y) == 96);
  sides<<<1, 1>>>(word, Numbers{{1, 2, 3}});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess && side() == -1);
  REQUIRE(word[0] == EXPECTED_ARCH && word[1] == 7 && word[2] == 8 && word[3] == 25);
  say<<<1, 2>>>("hello");
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
}

}  // namespace

int main() {
  int devices = 0;
  REQUIRE(cudaGetDeviceCount(&devices) == cudaSuccess);
  for (; device < devices; ++device) {
    REQUIRE(cudaSetDevice(device) == cudaSuccess);
    kernels();
    variables();
    shared_memory();
    threads();
    REQUIRE(other_files_sum(device) == 2 * device);
    REQUIRE(cudaGetLastError() == cudaSuccess);
    std::printf("device %d: right\n", device);
  }
}
