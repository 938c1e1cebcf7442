// File: base/folder.h: the names in a folder; folders for files that are soon removed.
//
// Names not by std::filesystem: libstdc++ reads a folder in functions that may not throw
// (_Dir::advance), so where memory is short it ends the process.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti {

inline constexpr std::size_t kMostNames = std::size_t{1} << 20;

/// The names of a folder's entries but "." and "..", sorted. kSystem: it can't be read, or has more
/// than `most`.
Result<std::vector<std::string>> names_in(const std::string& folder, std::size_t most = kMostNames);

/// Makes a folder of this user alone in TMPDIR (or /tmp), whose name begins so. kSystem: it can't.
Result<std::string> make_temporary_folder(std::string_view beginning);

}  // namespace tutti
