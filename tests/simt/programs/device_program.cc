// A program on tutti/cuda.h and CUDA's runtime, and what it asks of CUDA besides. Nothing in it
// knows of simulated GPUs.
#include <cuda_runtime_api.h>
#include <tutti/cuda.h>

#include <string>
#include <vector>

#include "said.h"

namespace {

constexpr std::size_t kCount = 5000;

void cuda(cudaError_t error, const char* what) {
  require(error == cudaSuccess, what, cudaGetErrorString(error));
}
void tutti(tutti_result_t result, const char* what) {
  require(result == TUTTI_OK, what, tutti_last_error());
}

/// The line of `describe` that says how ranks reach each other.
std::string description_of(tutti_device_comm_t comm) {
  std::size_t needed = 0;
  tutti_device_comm_describe(comm, nullptr, 0, &needed);
  std::string text(needed, '\0');
  tutti(tutti_device_comm_describe(comm, text.data(), text.size(), &needed), "describe");
  return text.c_str();
}

}  // namespace

int main() {
  tutti_device_comm_t comm = nullptr;
  tutti(tutti_device_comm_init_env(&comm), "joining");
  int rank = -1, size = 0, device = -1;
  tutti(tutti_device_comm_rank(comm, &rank), "rank");
  tutti(tutti_device_comm_count(comm, &size), "count");
  tutti(tutti_device_comm_device(comm, &device), "device");
  cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties;
  cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");

  cudaStream_t stream = nullptr;
  cudaEvent_t begun = nullptr, done = nullptr;
  cuda(cudaStreamCreate(&stream), "cudaStreamCreate");
  cuda(cudaEventCreate(&begun), "cudaEventCreate");
  cuda(cudaEventCreate(&done), "cudaEventCreate");
  void* data = nullptr;
  cuda(cudaMallocAsync(&data, kCount * sizeof(int), stream), "cudaMallocAsync");
  const std::vector<int> mine(kCount, rank + 1);
  cuda(cudaMemcpyAsync(data, mine.data(), kCount * sizeof(int), cudaMemcpyHostToDevice, stream),
       "cudaMemcpyAsync");
  cuda(cudaEventRecord(begun, stream), "cudaEventRecord");
  tutti(tutti_all_reduce_on_stream(comm, data, data, kCount, TUTTI_INT32, TUTTI_SUM, stream),
        "all-reduce");
  cuda(cudaEventRecord(done, stream), "cudaEventRecord");
  std::vector<int> found(kCount);
  cuda(cudaMemcpyAsync(found.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost, stream),
       "cudaMemcpyAsync");
  cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  tutti(tutti_device_comm_check(comm), "the all-reduce");
  for (const int value : found) require(value == size * (size + 1) / 2, "sum");
  float milliseconds = -1;
  cuda(cudaEventElapsedTime(&milliseconds, begun, done), "cudaEventElapsedTime");
  require(milliseconds >= 0, "cudaEventElapsedTime");
  if (rank == 0) std::printf("%s\n", description_of(comm).c_str());
  std::printf("rank %d of %d on %s: right\n", rank, size, properties.name);
  cuda(cudaFreeAsync(data, stream), "cudaFreeAsync");
  tutti(tutti_device_comm_destroy(comm), "leaving");
}
