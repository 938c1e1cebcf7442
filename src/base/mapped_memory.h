// File: base/mapped_memory.h: memory of mmap that unmaps itself.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <memory>

namespace tutti {

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* data) const { munmap(data, bytes); }
};
using MappedMemory = std::unique_ptr<std::byte, Unmap>;

/// Memory to read and write; null with errno set if there is none. The rest is as mmap has it.
inline MappedMemory map_memory(std::size_t bytes, int flags, int fd = -1, std::size_t offset = 0) {
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  return {data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data), Unmap{bytes}};
}

}  // namespace tutti
