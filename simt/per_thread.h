// File: simt/per_thread.h: the entry points of programs that are compiled with nvcc's
// --default-stream per-thread, or with CUDA_API_PER_THREAD_DEFAULT_STREAM: for these the null
// handle is the calling thread's own default stream
// (https://docs.nvidia.com/cuda/cuda-runtime-api/stream-sync-behavior.html).
//
// CUDA's headers give every function that takes a stream, or that uses the default one, a second
// name for them, which ends in _ptsz or _ptds. runtime_per_thread.cc defines these.
#pragma once
#include <cstddef>
#include <tuple>

namespace tutti::simt {

/// While it lives, the null handle is this thread's own default stream (find_stream).
class NullIsPerThread {
 public:
  NullIsPerThread();
  ~NullIsPerThread();
  NullIsPerThread(const NullIsPerThread&) = delete;
  NullIsPerThread& operator=(const NullIsPerThread&) = delete;

 private:
  bool before_;
};

template <class Function>
struct Signature;
template <class Result, class... Parameters>
struct Signature<Result(Parameters...)> {
  using Returned = Result;
  template <std::size_t index>
  using Parameter = std::tuple_element_t<index, std::tuple<Parameters...>>;

  /// The function, called as such programs do.
  template <Result (*function)(Parameters...)>
  static Result per_thread(Parameters... parameters) {
    const NullIsPerThread scope;
    return function(parameters...);
  }
};

}  // namespace tutti::simt
