// Kernels and launches in a header, and what two sources share.
#pragma once
#include <cstdio>

struct Numbers {
  int values[3];
  __host__ __device__ int sum() const { return values[0] + values[1] + values[2]; }
  __device__ int operator[](int i) const { return values[i]; }
};

#define LAUNCH(kernel, blocks, ...) kernel<<<blocks, 1>>>(__VA_ARGS__)

static __global__ void count(unsigned long long* total) { atomicAdd(total, 1ull); }
static __global__ void say(const char* text) {
  if (threadIdx.x == 1) printf("thread %d of device says %s\n", threadIdx.x, text);
}

/// What second.cu's kernel makes of the device's number: twice it.
int other_files_sum(int device);
