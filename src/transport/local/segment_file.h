// File: transport/local/segment_file.h: whether files and mappings are what a segment needs.
#pragma once
#include <cstddef>

#include "tutti/result.h"

namespace tutti::segments {

/// A new memfd of that many bytes, sealed against changes of its size. The caller closes it. An
/// error begins with `what`.
Result<int> make_file(std::size_t bytes, const char* what);

/// Checks that [data, data + bytes) is a shared mapping of the file `fd` at `offset`, and that
/// peers can map it for reading and writing. kInvalidArgument says what it is instead. It reads the
/// kernel's list of mappings, not the memory, which other threads may use meanwhile.
Status check_mapping(const void* data, std::size_t bytes, int fd, std::size_t offset);

}  // namespace tutti::segments
