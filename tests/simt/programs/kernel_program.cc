// A program with a kernel of its own, in the form that nvcc gives it: what it calls before main,
// and where the source says <<<>>>. And a function of the runtime and one of the driver that
// simulated GPUs have not. Exits with 0 if CUDA refuses all of it.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "said.h"

extern "C" {
void** __cudaRegisterFatBinary(void* image);
void __cudaRegisterFatBinaryEnd(void** handle);
void __cudaRegisterFunction(void** handle, const char* stub, char* device, const char* name,
                            int threads, uint3* thread, uint3* block, dim3* block_size,
                            dim3* grid_size, int* warp_size);
}

namespace {

void stub_of_my_kernel() {}

}  // namespace

int main() {
  void** handle = __cudaRegisterFatBinary(nullptr);
  char name[] = "_Z9my_kernelPi";
  const auto stub = reinterpret_cast<const char*>(&stub_of_my_kernel);
  __cudaRegisterFunction(handle, stub, name, name, -1, nullptr, nullptr, nullptr, nullptr, nullptr);
  __cudaRegisterFatBinaryEnd(handle);
  for (int i = 0; i < 2; ++i) {
    const cudaError_t error = cudaLaunchKernel(stub, dim3(1), dim3(32), nullptr, 0, nullptr);
    require(error == cudaErrorInvalidDeviceFunction, "a kernel", cudaGetErrorName(error));
  }
  require(cudaDeviceSetLimit(cudaLimitStackSize, 1024) == cudaErrorNotSupported,
          "cudaDeviceSetLimit");
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  require(driver != nullptr, "libcuda.so.1");
  const auto load = reinterpret_cast<decltype(&cuModuleLoad)>(dlsym(driver, "cuModuleLoad"));
  CUmodule module = nullptr;
  require(load != nullptr && load(&module, "my.cubin") == CUDA_ERROR_NOT_SUPPORTED, "cuModuleLoad");
  require(cudaGetLastError() == cudaErrorNotSupported, "the runtime's error, which is kept");
}
