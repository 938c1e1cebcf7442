// File: transport/local/segment_server.h: what segments.cc and segment_server.cc share.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tutti::segments {

struct Entry {
  std::uint64_t id = 0;
  int fd = -1;
  std::size_t bytes = 0;
  std::size_t offset = 0;  // The memory's, within the file.
  bool owned = false;      // By the library: it has a flag page behind it.
};

/// Bytes that a mapping of such a segment takes.
std::size_t mapped_bytes(std::size_t bytes, std::size_t offset, bool has_flag);

/// A copy of the entry with a descriptor that the caller closes; false if there is none.
bool find_entry(std::uint64_t id, Entry* entry);

}  // namespace tutti::segments
