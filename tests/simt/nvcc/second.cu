// A second source with names that language.cu has too: they are its own, unless -rdc=true.
#include "language.cuh"

#ifdef SEPARATE
__device__ int added(int a, int b);
extern __device__ int start;
#else
__device__ int twice(int x) { return 2 * x; }
__device__ int counter = 0;
__device__ int start = 0;
__device__ int added(int a, int b) { return a + b; }
#endif

__global__ void add_up(int* out, int device) {
#ifndef SEPARATE
  counter += twice(device);
  *out = added(counter, start);
#else
  *out = added(start, 2 * device);
#endif
}

int other_files_sum(int device) {
  int *at = nullptr, sum = -1;
  cudaMalloc(&at, sizeof *at);
  LAUNCH(add_up, 1, at, device);
  cudaMemcpy(&sum, at, sizeof sum, cudaMemcpyDeviceToHost);
  cudaFree(at);
  return sum;
}
