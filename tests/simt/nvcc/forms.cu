// Forms of declarations and launches that programs have, for the translator of simulated GPUs
// (simt/nvcc/translate.py). Prints "right".
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                      \
  do {                                                                   \
    const cudaError_t error = (call);                                    \
    if (error != cudaSuccess) {                                          \
      std::printf("line %d: %s\n", __LINE__, cudaGetErrorString(error)); \
      std::exit(1);                                                      \
    }                                                                    \
  } while (0)
#define EXPECT(what)                                        \
  do {                                                      \
    CHECK(cudaDeviceSynchronize());                         \
    if (!(what)) {                                          \
      std::printf("line %d: wrong: %s\n", __LINE__, #what); \
      std::exit(1);                                         \
    }                                                       \
  } while (0)

namespace a::b {
__global__ void k(int* x);
template <typename F>
__global__ void apply(int n, F f) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) f(i);
}
class Vec {
 public:
  __host__ __device__ Vec() : x(0), y{0} {}
  __host__ __device__ explicit Vec(float a, float b) : x(a), y{b} {}
  __host__ __device__ Vec operator+(const Vec& o) const { return Vec(x + o.x, y + o.y); }
  __device__ operator float() const { return x; }
  __host__ __device__ ~Vec() {}
  static __device__ float dot(const Vec& a, const Vec& b) { return a.x * b.x + a.y * b.y; }

 private:
  float x, y;
};
}  // namespace a::b
__global__ void a::b::k(int* x) { *x = 42; }
template <typename T>
__global__ void spec(T* out) {
  *out = T(1);
}
template <>
__global__ void spec<float>(float* out) {
  *out = 2.0f;
}
template __global__ void spec<double>(double*);
__global__ void __launch_bounds__(64) bounded(int* p);
__global__ void bounded(int* p) {
  if (threadIdx.x == 0) *p = blockDim.x;
}
struct __align__(16) Quad {
  float v[4];
};
__constant__ Quad quads[2];
typedef float (*Fn)(float);
__device__ float f1(float x) { return x + 1; }
__device__ float f2(float x) { return x * 2; }
__device__ Fn table[2] = {f1, f2};
template <unsigned int kBlock>
__device__ void warpReduce(volatile int* s, unsigned t) {
  if (kBlock >= 64) s[t] += s[t + 32];
}
template <class T, unsigned kBlock>
__global__ void reduce(const T* __restrict__ in, T* __restrict__ out, unsigned n) {
  extern __shared__ T sdata[];
  unsigned tid = threadIdx.x, i = blockIdx.x * (kBlock * 2) + tid;
  T sum = i < n ? in[i] : T();
  if (i + kBlock < n) sum += in[i + kBlock];
  sdata[tid] = sum;
  __syncthreads();
#pragma unroll
  for (unsigned s = kBlock / 2; s > 32; s >>= 1) {
    if (tid < s) sdata[tid] = sum = sum + sdata[tid + s];
    __syncthreads();
  }
  if (tid < 32) {
    if (kBlock >= 64) sum += sdata[tid + 32];
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffff, sum, o);
  }
  if (tid == 0) out[blockIdx.x] = sum;
}
template <class T>
void run_reduce(const T* in, T* out, unsigned n) {
  constexpr int kT = 128;
  switch (n % 2) {
    case 0: reduce<T, kT><<<(n + 2 * kT - 1) / (2 * kT), kT, kT * sizeof(T)>>>(in, out, n); break;
    default: break;
  }
}
struct Holder {
  void (*fn)(int*);
  std::vector<void (*)(int*)> all;
};
__global__ void use(float* o, a::b::Vec v, Quad q, const int, unsigned long count,
                    float (*g)(float), int dims[3]) {
  __shared__ Quad cache[2];
  __shared__ alignas(16) double d;
  if (threadIdx.x < 2) cache[threadIdx.x] = quads[threadIdx.x];
  if (threadIdx.x == 0) d = 3.5;
  __syncthreads();
  auto w = v + v;
  int lut[] = {1, 2, 3};
  o[threadIdx.x] = a::b::Vec::dot(w, v) + cache[1].v[3] + table[threadIdx.x & 1](10.0f) + float(d) +
                   q.v[0] + count + lut[threadIdx.x % 3];
}
static __device__ __forceinline__ int sq(int x) { return x * x; }
__device__ int fact(int n);
__device__ int fact(int n) { return n <= 1 ? 1 : n * fact(n - 1); }
__device__ volatile int vflag = 0;
__device__ unsigned int bins[16], *binp;
__global__ void dims2(int* o) {
  dim3 g = gridDim;
  o[blockIdx.y * g.x + blockIdx.x] = sq(threadIdx.y) + fact(4);
  atomicAdd(&bins[threadIdx.y], 1);
  vflag = 1;
}
int main() {
  int* x;
  CHECK(cudaMallocManaged(&x, 4096 * sizeof(int)));
  float* o = (float*)(x + 1024);
  a::b::k<<<1, 1>>>(x);
  EXPECT(*x == 42);
  {
    using namespace a::b;
    k<<<1, 1>>>(x);
  }
  if (x)
    a::b::k<<<1, 1>>>(x);
  else
    a::b::k<<<2, 1>>>(x);
  int n = 100;
  a::b::apply<<<(n + 31) / 32, 32>>>(n, [=] __device__(int i) { x[i] = i * 3; });
  EXPECT(x[99] == 297);
  auto lam = [=] __host__ __device__(int i) mutable -> void { x[i] += 1; };
  a::b::apply<decltype(lam)><<<4, 32>>>(n, lam);
  EXPECT(x[99] == 298);
  spec<<<1, 1>>>(o);
  EXPECT(*o == 2.0f);
  spec<int><<<1, 1>>>(x);
  EXPECT(*x == 1);
  bounded<<<1, 64>>>(x);
  EXPECT(*x == 64);
  bounded<<<1, 65>>>(x);
  EXPECT(cudaGetLastError() == cudaErrorLaunchOutOfResources);
  for (int i = 0; i < 512; ++i) x[i] = 1;
  run_reduce<int>(x, x + 600, 512);
  EXPECT(x[600] + x[601] == 512);
  Quad q[2] = {{{1, 2, 3, 4}}, {{5, 6, 7, 8}}};
  CHECK(cudaMemcpyToSymbol(quads, q, sizeof(q)));
  use<<<1, 2>>>(o, a::b::Vec(1, 2), q[0], 3, 4ul, nullptr, nullptr);
  EXPECT(o[0] == 38.5f && o[1] == 48.5f);
  Holder h{&bounded, {bounded, a::b::k}};
  h.fn<<<1, 32>>>(x);
  h.all[1]<<<1, 1>>>(x);
  (*h.all[0])<<<1, 8>>>(x + 1);
  Holder* hp = &h;
  hp->all.at(1)<<<1, 1>>>(x + 2);
  EXPECT(x[0] == 42 && x[1] == 8 && x[2] == 42);
  dims2<<<dim3(3, 2), dim3(1, 4)>>>(x);
  CHECK(cudaDeviceSynchronize());
  unsigned b[16];
  CHECK(cudaMemcpyFromSymbol(b, bins, sizeof b));
  EXPECT(b[3] == 6 && x[5] >= 24);
  void* args[] = {&x};
  CHECK(cudaLaunchKernel(bounded, 1, 4, args));
  CHECK(cudaLaunchCooperativeKernel((void*)bounded, dim3(1), dim3(4), args));
  EXPECT(*x == 4);
  n > 5 ? bounded<<<1, 4>>>(x) : bounded<<<1, 5>>>(x);

  EXPECT(*x == 4);
  cudaStream_t s;
  cudaStreamCreate(&s);
  cudaGraph_t g;
  cudaGraphExec_t ge;
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  bounded<<<1, 7, 0, s>>>(x);
  CHECK(cudaStreamEndCapture(s, &g));
  CHECK(cudaGraphInstantiate(&ge, g, 0));
  CHECK(cudaGraphLaunch(ge, s));
  CHECK(cudaStreamSynchronize(s));
  EXPECT(*x == 7);
  std::printf("right\n");
}
