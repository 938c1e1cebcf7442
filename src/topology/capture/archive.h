// File: topology/capture/archive.h: a saved file tree in a tar file, plain or compressed (bzip2,
// gzip, xz).
//
// What is read is hostile until shown otherwise: only regular files, directories and links become
// part of the tree, in memory; sizes and counts are bounded (also of what was compressed); nothing
// is written to the disk, and links are resolved in the tree alone (file_tree.h).
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "topology/probe/sources/file_tree.h"
#include "tutti/result.h"

namespace tutti::topology {

inline constexpr std::size_t kMostArchiveEntries = 1'000'000;
inline constexpr std::size_t kMostArchiveBytes = std::size_t{256} << 20;  // Unpacked.

/// The tree of an archive. A directory that all of it lies in ("host7/sys/...", as hwloc's
/// gathering makes them) is left out of the paths. Errors are kInvalidArgument and begin with
/// `source`.
Result<std::unique_ptr<MemoryTree>> read_archive(std::string_view bytes, std::string_view source);
Result<std::unique_ptr<MemoryTree>> read_archive_file(const std::string& path);

/// Writes the tree as an archive: plain tar, or bzip2 or gzip where the name ends like that.
/// Contents have no owner and no time, so the same tree makes the same bytes.
Status write_archive(const MemoryTree& tree, const std::string& path);

}  // namespace tutti::topology
