// File: transport/segment_file.h: whether files and mappings are what a segment needs.
#pragma once
#include <cstddef>

#include "tutti/result.h"

namespace tutti::segments {

/// A new memfd of that many bytes, sealed against changes of its size, which the caller closes.
/// `what` begins the error.
Result<int> make_file(std::size_t bytes, const char* what);

/// Whether [data, data + bytes) is a shared mapping of the file `fd` at `offset` that peers can map
/// for reading and writing; kInvalidArgument says what it is instead. Looks at the kernel's list of
/// mappings, so it neither reads nor writes the memory, and others may use it meanwhile.
Status check_mapping(const void* data, std::size_t bytes, int fd, std::size_t offset);

}  // namespace tutti::segments
