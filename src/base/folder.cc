#include "base/folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

namespace tutti {
namespace {

Error unreadable(const std::string& folder, int error) {
  return {Code::kSystem,
          fmt::format("reading the folder {}: {}", folder, std::generic_category().message(error))};
}

}  // namespace

Result<std::vector<std::string>> names_in(const std::string& folder, std::size_t most) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::opendir(folder.c_str()), ::closedir);
  if (listing == nullptr) return unreadable(folder, errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;  // The end of the folder leaves it alone.
    const dirent* const entry = ::readdir(listing.get());
    if (entry == nullptr && errno != 0) return unreadable(folder, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == most) {
      return Error{Code::kSystem,
                   fmt::format("the folder {} has more than {} entries", folder, most)};
    }
    names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> make_temporary_folder(std::string_view beginning) {
  std::error_code failure;
  const auto parent = std::filesystem::temp_directory_path(failure);
  if (failure)
    return Error{Code::kSystem,
                 fmt::format("no temporary folder: TMPDIR names none ({}); set it to a folder that "
                             "can be written",
                             failure.message())};
  std::string path = (parent / fmt::format("{}-XXXXXX", beginning)).string();
  if (::mkdtemp(path.data()) == nullptr)
    return Error{Code::kSystem,
                 fmt::format("no temporary folder in {}: {}; set TMPDIR to another",
                             parent.string(), std::generic_category().message(errno))};
  return path;
}

}  // namespace tutti
