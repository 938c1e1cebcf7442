// File: base/folder.h: the names in a folder.
//
// Not by std::filesystem: libstdc++ reads a folder in functions that may not throw (_Dir::advance),
// so where memory is short it ends the process.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti {

inline constexpr std::size_t kMostNames = std::size_t{1} << 20;

/// The names of a folder's entries but "." and "..", sorted. kSystem: it can't be read, or has more
/// than `most`.
Result<std::vector<std::string>> names_in(const std::string& folder, std::size_t most = kMostNames);

}  // namespace tutti
