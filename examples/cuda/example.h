// What the examples share: a rank with its GPU and a window of memory that all ranks map, and ends
// where something fails.
#pragma once
#include <cuda_runtime.h>
#include <tutti/device_communicator.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

inline void require(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}
inline void require(cudaError_t error, const char* what) {
  require(error == cudaSuccess, std::string(what) + ": " + cudaGetErrorString(error));
}
inline void require(const tutti::Status& status) {
  if (!status) require(false, status.error().to_string());
}
template <class T>
T required(tutti::Result<T> result) {
  if (!result) require(false, result.error().to_string());
  return *std::move(result);
}

/// Memory of this rank's device alone.
template <class T>
T* device_copy(const std::vector<T>& values) {
  void* data = nullptr;
  require(cudaMalloc(&data, values.size() * sizeof(T)), "cudaMalloc");
  require(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
          "cudaMemcpy");
  return static_cast<T*>(data);
}
template <class T>
std::vector<T> host_copy(const void* data, std::size_t count) {
  std::vector<T> values(count);
  require(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
  return values;
}

/// A rank, as the launcher has started it (tutti run, torchrun, ...).
struct Example {
  Example() {
    require(cudaSetDevice(comm.device()), "cudaSetDevice");
    require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  }

  /// A window of `bytes`, and a handle for kernels on it. Collective.
  tutti::DeviceHandle open(std::size_t bytes, int channels) {
    window = static_cast<std::byte*>(required(tutti::device_mem_alloc(comm.device(), bytes)));
    require(comm.register_memory(window, bytes));
    return required(comm.device_handle(window, bytes, channels));
  }
  /// Launches a kernel of the program's in the order of the communicator's calls.
  void launch(const void* kernel, unsigned blocks, unsigned threads, void** arguments) {
    require(comm.launch(stream, [&] {
      return cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, 0, stream);
    }));
  }
  /// Waits; a rank that failed is an error here.
  void finish() {
    require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    require(comm.check());
  }
  void close() {
    require(comm.deregister_memory(window));
    require(tutti::device_mem_free(window));
  }

  tutti::DeviceCommunicator comm = required(tutti::DeviceCommunicator::from_environment());
  cudaStream_t stream = nullptr;
  std::byte* window = nullptr;
};
