// File: simt/runtime_memset.cc: writes one value into memory, in the stream's order: a line, or
// rows that begin `pitch` bytes apart, of elements of 1, 2 or 4 bytes; or a word that others wait
// for. And a stream waits for such a word.
#include <cuda.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "simt/machine.h"
#include "simt/runtime.h"

namespace tutti::simt {
namespace {

struct Rows {
  std::size_t width = 0, height = 1;  // Elements of a row; rows.
  std::size_t pitch = 0;              // Bytes from row to row; without a meaning for one row.
};

/// Whether all rows are elements in memory that can be written.
template <class T>
bool writable(const void* at, const Rows& rows) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(T) != 0) return false;
  if (rows.width == 0 || rows.height == 0) return true;
  // No sum of these overflows: nothing is as large.
  constexpr std::size_t kMost = std::size_t{1} << 40;
  if (rows.width > kMost / sizeof(T) || rows.height > kMost) return false;
  const std::size_t row = rows.width * sizeof(T);
  if (rows.height == 1) return within(at, row);
  if (rows.pitch < row || rows.pitch % sizeof(T) != 0 || rows.pitch > kMost / rows.height)
    return false;
  return within(at, rows.pitch * (rows.height - 1) + row);
}

template <class T>
cudaError_t fill(void* at, T value, Rows rows, cudaStream_t stream) {
  if (!writable<T>(at, rows)) return cudaErrorInvalidValue;
  return enqueue(stream, [=] {
    for (std::size_t row = 0; row < rows.height; ++row)
      std::fill_n(reinterpret_cast<T*>(static_cast<char*>(at) + row * rows.pitch), rows.width,
                  value);
  });
}

/// The same on the default stream; returns when it is done.
template <class T>
cudaError_t fill_now(void* at, T value, Rows rows) {
  return at_once([=] { return fill(at, value, rows, nullptr); });
}

std::atomic<bool> values_refused{false};

/// Only errors of the runtime's functions are the runtime's last error.
cudaError_t told(cudaError_t error) { return error == cudaSuccess ? error : failed(error); }
void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }
CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }

/// With or without CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER there is one.
template <class Word>
CUresult write_word(CUstream stream, CUdeviceptr at, Word value) {
  if (!writable<Word>(pointer(at), {.width = 1})) return CUDA_ERROR_INVALID_VALUE;
  return result_of(enqueue(stream, [=] {
    // release: a kernel or a host that sees the value sees what the stream did before.
    std::atomic_ref(*static_cast<Word*>(pointer(at))).store(value, std::memory_order_release);
  }));
}

}  // namespace

void refuse_stream_values(bool refuse) { values_refused = refuse; }
bool stream_values_are_refused() { return values_refused; }

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
  return told(fill(at, static_cast<unsigned char>(value), {.width = bytes}, stream));
}
cudaError_t cudaMemset(void* at, int value, std::size_t bytes) {
  return told(fill_now(at, static_cast<unsigned char>(value), {.width = bytes}));
}
cudaError_t cudaMemset2DAsync(void* at, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  return told(fill(at, static_cast<unsigned char>(value), {width, height, pitch}, stream));
}
cudaError_t cudaMemset2D(void* at, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  return told(fill_now(at, static_cast<unsigned char>(value), {width, height, pitch}));
}

#define TUTTI_SIMT_MEMSET(bits, type)                                                          \
  CUresult cuMemsetD##bits(CUdeviceptr at, type value, std::size_t count) {                    \
    return result_of(fill_now<type>(pointer(at), value, {.width = count}));                    \
  }                                                                                            \
  CUresult cuMemsetD##bits##Async(CUdeviceptr at, type value, std::size_t count,               \
                                  CUstream stream) {                                           \
    return result_of(fill<type>(pointer(at), value, {.width = count}, stream));                \
  }                                                                                            \
  CUresult cuMemsetD2D##bits(CUdeviceptr at, std::size_t pitch, type value, std::size_t width, \
                             std::size_t height) {                                             \
    return result_of(fill_now<type>(pointer(at), value, {width, height, pitch}));              \
  }                                                                                            \
  CUresult cuMemsetD2D##bits##Async(CUdeviceptr at, std::size_t pitch, type value,             \
                                    std::size_t width, std::size_t height, CUstream stream) {  \
    return result_of(fill<type>(pointer(at), value, {width, height, pitch}, stream));          \
  }
TUTTI_SIMT_MEMSET(8, unsigned char)
TUTTI_SIMT_MEMSET(16, unsigned short)
TUTTI_SIMT_MEMSET(32, unsigned int)
#undef TUTTI_SIMT_MEMSET

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned) {
  return write_word(stream, at, value);
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned) {
  return write_word(stream, at, value);
}
CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
  const bool known = flags == CU_STREAM_WAIT_VALUE_GEQ || flags == CU_STREAM_WAIT_VALUE_EQ;
  if (!known || !writable<cuuint64_t>(pointer(at), {.width = 1})) return CUDA_ERROR_INVALID_VALUE;
  return result_of(enqueue(stream, [=] {
    // acquire: what the writer of the value did before is seen after.
    const std::atomic_ref word(*static_cast<cuuint64_t*>(pointer(at)));
    const auto comes = [&] {
      const cuuint64_t now = word.load(std::memory_order_acquire);
      return flags == CU_STREAM_WAIT_VALUE_EQ ? now == value
                                              : static_cast<std::int64_t>(now - value) >= 0;
    };
    while (!comes()) usleep(50);
  }));
}

}  // extern "C"
