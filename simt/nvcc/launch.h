// File: simt/nvcc/launch.h: what translate.py makes of kernels, of `<<<>>>`, and of variables of
// devices.
//
// A kernel stays a function of its own name. Its first statement asks whether a thread of a device
// runs it; the host instead launches it, as nvcc's stub does, with the configuration that `<<<>>>`
// left. The address of that function is the kernel's handle.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "simt/engine.h"
#include "simt/variables.h"

extern "C" {
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes,
                                     cudaStream_t stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes,
                                       void* stream);
}

namespace tutti::simt::nvcc {

inline void configure(dim3 grid, dim3 block, std::size_t shared_bytes = 0,
                      cudaStream_t stream = nullptr) {
  if (current != nullptr) die("a kernel launches a kernel: simulated GPUs do not have that");
  __cudaPushCallConfiguration(grid, block, shared_bytes, stream);
}

template <class Function>
struct Packing;
template <class... Parameters>
struct Packing<void (*)(Parameters...)> {
  using Tuple = std::tuple<std::remove_const_t<Parameters>...>;
  template <std::size_t... index>
  static void pack([[maybe_unused]] void** arguments, void* packed, std::index_sequence<index...>) {
    new (packed) Tuple(*static_cast<std::remove_const_t<Parameters>*>(arguments[index])...);
  }
  static void pack_all(void** arguments, void* packed) {
    pack(arguments, packed, std::index_sequence_for<Parameters...>{});
  }
  static void invoke(const void* function, void* packed) {
    std::apply(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function)),
               *static_cast<Tuple*>(packed));
  }
};

/// "fill<int>", of what the compiler calls this function.
template <auto kernel>
const char* name_of() {
  static const auto* const name = [] {
    std::string_view text = __PRETTY_FUNCTION__;
    constexpr std::string_view kBefore = "kernel = ";
    text.remove_prefix(text.find(kBefore) + kBefore.size());
    return new std::string(text.substr(0, text.rfind(']')));
  }();
  return name->c_str();
}

/// Makes a kernel known before main.
template <auto kernel, int most_threads>
struct Registered {
  Registered() {
    using Pack = Packing<decltype(kernel)>;
    register_kernel({reinterpret_cast<const void*>(kernel), name_of<kernel>(),
                     sizeof(typename Pack::Tuple), &Pack::pack_all, &Pack::invoke, most_threads,
                     registers_by_bound(most_threads)});
  }
};
template <auto kernel, int most_threads>
inline const Registered<kernel, most_threads> registered;

/// The kernel as the host calls it. An error is the last one (cudaGetLastError).
template <auto kernel, int most_threads, class... Arguments>
void launch(Arguments&... arguments) {
  [[maybe_unused]] const void* const known = &registered<kernel, most_threads>;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  if (__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream) != cudaSuccess) return;
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(std::addressof(arguments)))...,
                      nullptr};
  static_cast<void>(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, pointers,
                                     shared_bytes, stream));
}

// Shared memory whose size the launch says.
inline void* dynamic_shared() { return current->dynamic_shared; }
/// What is declared outside of functions.
template <class T>
struct DynamicShared {
  operator T*() const { return static_cast<T*>(dynamic_shared()); }
  template <class U>
  explicit operator U*() const {
    return static_cast<U*>(dynamic_shared());
  }
  T* operator&() const { return static_cast<T*>(dynamic_shared()); }
};

/// What the runtime knows a variable by.
template <class T>
const void* symbol_of(const T& variable) {
  return const_cast<const void*>(static_cast<const volatile void*>(std::addressof(variable)));
}

/// A __device__ or __constant__ variable: `here` is the copy of the device whose thread asks.
template <class T>
class Variable {
 public:
  Variable(T& host, const char* name) {
    variable_.host = const_cast<void*>(symbol_of(host));
    variable_.bytes = sizeof(T);
    variable_.name = name;
    register_variable(&variable_);
  }
  T& here() const { return *static_cast<T*>(variable_here(variable_)); }

 private:
  DeviceVariable variable_;
};

}  // namespace tutti::simt::nvcc

// What cuda_runtime.h has for nvcc alone: symbols by their names.
template <class T>
cudaError_t cudaGetSymbolAddress(void** at, const T& symbol) {
  return ::cudaGetSymbolAddress(at, tutti::simt::nvcc::symbol_of(symbol));
}
template <class T>
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const T& symbol) {
  return ::cudaGetSymbolSize(bytes, tutti::simt::nvcc::symbol_of(symbol));
}
template <class T>
cudaError_t cudaMemcpyToSymbol(const T& symbol, const void* from, std::size_t bytes,
                               std::size_t offset = 0,
                               cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(tutti::simt::nvcc::symbol_of(symbol), from, bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyFromSymbol(void* to, const T& symbol, std::size_t bytes,
                                 std::size_t offset = 0,
                                 cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, tutti::simt::nvcc::symbol_of(symbol), bytes, offset, kind);
}
template <class T>
cudaError_t cudaMemcpyToSymbolAsync(const T& symbol, const void* from, std::size_t bytes,
                                    std::size_t offset = 0,
                                    cudaMemcpyKind kind = cudaMemcpyHostToDevice,
                                    cudaStream_t stream = nullptr) {
  return ::cudaMemcpyToSymbolAsync(tutti::simt::nvcc::symbol_of(symbol), from, bytes, offset, kind,
                                   stream);
}
template <class T>
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const T& symbol, std::size_t bytes,
                                      std::size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyDeviceToHost,
                                      cudaStream_t stream = nullptr) {
  return ::cudaMemcpyFromSymbolAsync(to, tutti::simt::nvcc::symbol_of(symbol), bytes, offset, kind,
                                     stream);
}

// And kernels by their names.
template <class T>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, T* kernel) {
  return ::cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <class T>
cudaError_t cudaFuncSetCacheConfig(T* kernel, cudaFuncCache config) {
  return ::cudaFuncSetCacheConfig(reinterpret_cast<const void*>(kernel), config);
}
