// File: base/input.h: how programs read files named on a command line: whole, and up to a limit.
#pragma once
#include <cstddef>
#include <string>

#include "tutti/result.h"

namespace tutti {

inline constexpr std::size_t kMostInputBytes = std::size_t{256} << 20;

/// All bytes of a file ("-": standard input). kSystem with the path and the reason: it can't be
/// read, is a folder, or is longer than `most` bytes, as an endless device is.
Result<std::string> read_whole(const std::string& path, std::size_t most = kMostInputBytes);

}  // namespace tutti
