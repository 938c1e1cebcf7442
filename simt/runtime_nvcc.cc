// File: simt/runtime_nvcc.cc: the functions that nvcc's code calls before main and at <<<>>>: a
// program's own kernels are known by name, and not run.
//
// A kernel that was compiled with simt/language.h is found by its function (engine.h); all others
// are machine code for GPUs. To launch one is cudaErrorInvalidDeviceFunction, and one line on
// stderr says which kernel that was.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simt/per_thread.h"
#include "simt/runtime.h"

namespace tutti::simt {
namespace {

struct Foreign {
  std::mutex mutex;
  std::map<const void*, std::string> names;  // By the stub on the host.
  std::map<std::string, bool> said;
};
Foreign& foreign() {
  static auto& one = *new Foreign;
  return one;
}

struct Configuration {
  dim3 grid, block;
  std::size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

/// "fill(int*, int)" of "_Z4fillPii"; the name itself if it is no such.
std::string readable(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

void say_once(const std::string& line) {
  const std::lock_guard lock(foreign().mutex);
  if (!std::exchange(foreign().said[line], true)) std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace

void say_foreign_kernel(const void* function) {
  std::string name = "a kernel";
  {
    const std::lock_guard lock(foreign().mutex);
    const auto found = foreign().names.find(function);
    if (found != foreign().names.end()) name = "kernel " + readable(found->second);
  }
  say_once("simulated GPUs: " + name +
           " of the program was not run: it is machine code for GPUs; compile it with "
           "lib/tutti/simulated/cuda/bin/nvcc");
}

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

/// A function of CUDA's that there is not (CMakeLists.txt has their names). Only the runtime keeps
/// its errors, and both have the same number for this one.
cudaError_t tutti_simt_missing(const char* name) {
  say_once("simulated GPUs: the program calls " + std::string(name) +
           ", which they do not have; this needs a GPU");
  const bool runtimes = std::string_view(name).starts_with("cuda");
  return runtimes ? failed(cudaErrorNotSupported) : cudaErrorNotSupported;
}

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, std::size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const std::lock_guard lock(foreign().mutex);
  foreign().names[function] = name;
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream) {
  if (configurations.empty()) return failed(cudaErrorInvalidConfiguration);
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = last.stream;
  return cudaSuccess;
}
/// A kernel's handle is its function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                    std::size_t shared_bytes, cudaStream_t stream) {
  const NullIsPerThread scope;
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
