// File: sweep/buffer.h: memory of one rank that is measured with.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tutti/communicator.h"

namespace tutti::perf {

/// Zeros: plain, or of a kind that peers can map. Null where there is no memory.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, bool mapped = false) : mapped_(mapped) {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    if (mapped) {
      if (auto memory = mem_alloc(size)) data_ = static_cast<std::byte*>(*memory);
    } else {
      data_ = static_cast<std::byte*>(std::aligned_alloc(4096, (size + 4095) / 4096 * 4096));
    }
    if (data_ != nullptr) std::memset(data_, 0, size);
  }
  ~Buffer() {
    if (mapped_)
      (void)mem_free(data_);
    else
      std::free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  bool mapped_;
  std::byte* data_ = nullptr;
};

}  // namespace tutti::perf
