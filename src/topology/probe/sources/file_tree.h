// File: topology/probe/sources/file_tree.h: files by absolute path, wherever they lie: on the disk
// below a root, or in an archive (archive.h). So that the same probe reads this machine and
// another's saved tree.
//
// Symbolic links are resolved by us, never by the kernel: an absolute link starts again at the
// tree's own root, and ".." stops there. So no link leads out of a tree. Nothing here fails: what
// can't be read is absent, as probes live with absence.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

class FileTree {
 public:
  enum class Kind { kAbsent, kFile, kDirectory, kLink };
  struct Entry {
    Kind kind = Kind::kAbsent;
    std::string target;  // A link's.
  };

  FileTree() = default;
  FileTree(const FileTree&) = delete;
  FileTree& operator=(const FileTree&) = delete;
  virtual ~FileTree() = default;

  /// The content of a file, at most kMostBytes of it; none if there is none that can be read.
  std::optional<std::string> read(std::string_view path) const;
  /// The same without white space at its ends; "" if there is none.
  std::string text(std::string_view path) const;
  /// Names in a directory, sorted; empty if there is no such directory.
  std::vector<std::string> list(std::string_view path) const;
  /// The path with all links resolved; none if it does not exist.
  std::optional<std::string> real_path(std::string_view path) const;

  static constexpr std::size_t kMostBytes = 4 << 20;

  // Reads the tree itself: paths are absolute, in normal form, and no directory on the way is a
  // link.
  virtual Entry entry(const std::string& path) const = 0;
  virtual std::optional<std::string> content(const std::string& path) const = 0;
  virtual std::vector<std::string> names(const std::string& path) const = 0;
};

/// The disk below `root`. Files are read when asked for.
std::unique_ptr<FileTree> disk_tree(std::string root);

/// Files that are given: paths without links on the way, as above.
class MemoryTree : public FileTree {
 public:
  /// Adds a file, a link or a directory, and the directories above it. A path that is there
  /// already is replaced.
  void add_file(const std::string& path, std::string content);
  void add_link(const std::string& path, std::string target);
  void add_directory(const std::string& path);

  Entry entry(const std::string& path) const override;
  std::optional<std::string> content(const std::string& path) const override;
  std::vector<std::string> names(const std::string& path) const override;

  struct Item {
    Kind kind = Kind::kDirectory;
    std::string text;  // The content, or the link's target.
  };
  const std::map<std::string, Item>& items() const { return items_; }

 private:
  void add(const std::string& path, Item item);
  std::map<std::string, Item> items_;
};

/// Hands on another tree and keeps a copy of all that was asked for: what a probe has read. Reading
/// the copy gives the probe the same answers.
class RecordingTree : public FileTree {
 public:
  explicit RecordingTree(const FileTree& source) : source_(source) {}
  const MemoryTree& copy() const { return copy_; }

  Entry entry(const std::string& path) const override;
  std::optional<std::string> content(const std::string& path) const override;
  std::vector<std::string> names(const std::string& path) const override;

 private:
  const FileTree& source_;
  mutable MemoryTree copy_;  // Recording is not a change that a reader of the tree can see.
};

/// "/a/b" from "//a/./c/../b": absolute, without ".", "..", and doubled slashes. Does not know of
/// links.
std::string normal_path(std::string_view path);

}  // namespace tutti::topology
