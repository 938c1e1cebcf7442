// File: simt/runtime_memcpy.cc: copies, of a line or of rows.
//
// A copy from or to pageable memory is what a driver makes of it (CUDA Runtime API, "API
// synchronization behavior"): one to pageable memory, or from host to host, returns when it is
// done; one from pageable memory to a device takes the data at once, as far as they fit its
// buffers, and else waits, too. A thread that waits so holds what other threads' launches on the
// device need (https://forums.developer.nvidia.com/t/222211). So a copy behind a kernel that waits
// for another kernel, which is yet to be launched, never returns.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "simt/runtime.h"

namespace tutti::simt {
namespace {

struct Rows {
  std::size_t width = 0, height = 1;
};
struct Side {
  char* at = nullptr;
  std::size_t pitch = 0;
};

void copy(Side to, Side from, Rows rows) {
  if (rows.width == 0) return;  // memmove wants pointers even for nothing.
  const auto address =
      reinterpret_cast<std::uintptr_t>(to.at) | reinterpret_cast<std::uintptr_t>(from.at);
  if (rows.width == sizeof(std::uint64_t) && rows.height == 1 && address % rows.width == 0) {
    // A device copies an aligned word at once: others may write it meanwhile.
    const auto word = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from.at));
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to.at))
        .store(word.load(std::memory_order_acquire), std::memory_order_release);
    return;
  }
  for (std::size_t row = 0; row < rows.height; ++row)
    std::memmove(to.at + row * to.pitch, from.at + row * from.pitch, rows.width);
}

bool is_captured(cudaStream_t handle) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return false;
  const std::lock_guard lock(stream->mutex);
  return stream->capture != nullptr;
}

cudaError_t enqueue_copy(Side to, Side from, Rows rows, cudaStream_t stream) {
  const auto run = [=] { copy(to, from, rows); };
  if (!settings().pageable_waits || is_captured(stream)) return enqueue(stream, run);
  const bool pageable = is_pageable(from.at);
  if (is_pageable(to.at) || (is_host(to.at) && is_host(from.at)))
    return enqueue(stream, run,
                   {.waits = "a copy to pageable memory waits for its stream; launches of other "
                             "threads on the device wait for it"});
  constexpr std::size_t kStaged = std::size_t{64} << 10;
  const std::size_t bytes = rows.width * rows.height;
  if (!pageable) return enqueue(stream, run);
  if (bytes > kStaged)
    return enqueue(
        stream, run,
        {.waits = "a copy of more than 64 KiB from pageable memory waits for its stream; "
                  "launches of other threads on the device wait for it"});
  const auto staged = std::make_shared<std::vector<char>>(bytes);
  copy({staged->data(), rows.width}, from, rows);
  return enqueue(stream, [=] { copy(to, {staged->data(), rows.width}, rows); });
}

Side side(const void* at, std::size_t pitch) {
  return {static_cast<char*>(const_cast<void*>(at)), pitch};
}

}  // namespace
}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  if (!within(to, bytes) || !within(from, bytes)) return failed(cudaErrorInvalidValue);
  return enqueue_copy(side(to, bytes), side(from, bytes), {.width = bytes}, stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return at_once([=] { return cudaMemcpyAsync(to, from, bytes, kind, nullptr); });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, std::size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return failed(cudaErrorInvalidValue);
  return enqueue_copy(side(to, to_pitch), side(from, from_pitch), {width, height}, stream);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return at_once([=] {
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  });
}

}  // extern "C"
