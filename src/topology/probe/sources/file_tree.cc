#include "topology/probe/sources/file_tree.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "base/folder.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;           // On the way to one file, as in the kernel.
constexpr std::size_t kMostPath = 4096;  // PATH_MAX.

std::string parent_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

class DiskTree : public FileTree {
 public:
  explicit DiskTree(std::string root) : root_(std::move(root)) {
    while (!root_.empty() && root_.back() == '/') root_.pop_back();
  }

  Entry entry(const std::string& path) const override {
    std::error_code error;
    const fs::path full = root_ + path;
    switch (fs::symlink_status(full, error).type()) {
      case fs::file_type::directory: return {Kind::kDirectory, {}};
      case fs::file_type::regular: return {Kind::kFile, {}};
      case fs::file_type::symlink: break;
      default: return {};
    }
    const fs::path target = fs::read_symlink(full, error);
    return error ? Entry{} : Entry{Kind::kLink, target.string()};
  }

  std::optional<std::string> content(const std::string& path) const override {
    const int file = open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) return {};
    // Sizes that sysfs and procfs tell are not true, so read to the end.
    std::string text;
    std::array<char, 16384> block;
    ssize_t got = 0;
    while (text.size() < kMostBytes && (got = ::read(file, block.data(), block.size())) > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    }
    close(file);
    if (got < 0) return {};
    return text;
  }

  std::vector<std::string> names(const std::string& path) const override {
    auto found = names_in(root_ + path);
    return found ? *std::move(found) : std::vector<std::string>();
  }

 private:
  std::string root_;
};

}  // namespace

std::string normal_path(std::string_view path) {
  std::string normal = (fs::path("/") / path).lexically_normal().string();
  if (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

std::optional<std::string> FileTree::real_path(std::string_view path) const {
  std::string rest(path);  // Still to be walked; links are put in front of it.
  std::string real;        // Resolved so far: "" is the root.
  int links = 0;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string part = rest.substr(0, end);
    rest.erase(0, std::min(end + 1, rest.size()));
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      real.resize(std::min(real.size(), real.rfind('/')));
      continue;
    }
    const std::string next = real + "/" + part;
    if (next.size() > kMostPath) return {};
    const Entry found = entry(next);
    if (found.kind == Kind::kAbsent) return {};
    if (found.kind != Kind::kLink) {
      if (found.kind == Kind::kFile && !rest.empty()) return {};
      real = next;
      continue;
    }
    if (++links > kMostLinks || found.target.size() + rest.size() > kMostPath) return {};
    if (!found.target.empty() && found.target[0] == '/') real.clear();
    rest = found.target + "/" + rest;
    if (rest.back() == '/') rest.pop_back();
  }
  return real.empty() ? "/" : real;
}

std::optional<std::string> FileTree::read(std::string_view path) const {
  const auto real = real_path(path);
  if (!real || entry(*real).kind != Kind::kFile) return {};
  return content(*real);
}

std::string FileTree::text(std::string_view path) const {
  const auto whole = read(path);
  if (!whole) return {};
  return std::string(trim(*whole));
}

std::vector<std::string> FileTree::list(std::string_view path) const {
  const auto real = real_path(path);
  if (!real || (*real != "/" && entry(*real).kind != Kind::kDirectory)) return {};
  return names(*real);
}

std::unique_ptr<FileTree> disk_tree(std::string root) {
  return std::make_unique<DiskTree>(std::move(root));
}

void MemoryTree::add(const std::string& path, Item item) {
  for (std::string above = parent_of(path); above != "/"; above = parent_of(above)) {
    if (!items_.try_emplace(above).second) break;
  }
  items_[path] = std::move(item);
}
void MemoryTree::add_file(const std::string& path, std::string content) {
  add(path, {Kind::kFile, std::move(content)});
}
void MemoryTree::add_link(const std::string& path, std::string target) {
  add(path, {Kind::kLink, std::move(target)});
}
void MemoryTree::add_directory(const std::string& path) {
  if (path == "/" || entry(path).kind == Kind::kDirectory) return;
  add(path, {Kind::kDirectory, {}});
}

FileTree::Entry MemoryTree::entry(const std::string& path) const {
  const auto found = items_.find(path);
  if (found == items_.end()) return {};
  return {found->second.kind, found->second.kind == Kind::kLink ? found->second.text : ""};
}

std::optional<std::string> MemoryTree::content(const std::string& path) const {
  const auto found = items_.find(path);
  if (found == items_.end() || found->second.kind != Kind::kFile) return {};
  return found->second.text;
}

std::vector<std::string> MemoryTree::names(const std::string& path) const {
  const std::string prefix = path == "/" ? "/" : path + "/";
  std::vector<std::string> found;
  auto at = items_.lower_bound(prefix);
  while (at != items_.end() && at->first.compare(0, prefix.size(), prefix) == 0) {
    const std::size_t slash = at->first.find('/', prefix.size());
    if (slash == std::string::npos) {
      found.push_back(at->first.substr(prefix.size()));
      ++at;
    } else {  // Inside a directory that was listed already: past all of it. '0' follows '/'.
      at = items_.lower_bound(at->first.substr(0, slash) + "0");
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

FileTree::Entry RecordingTree::entry(const std::string& path) const {
  Entry found = source_.entry(path);
  if (found.kind == Kind::kDirectory) copy_.add_directory(path);
  // That a file is there is an answer too: an empty one says so until it is read.
  const bool is_new = copy_.entry(path).kind == Kind::kAbsent;
  if (found.kind == Kind::kFile && is_new) copy_.add_file(path, "");
  if (found.kind == Kind::kLink) copy_.add_link(path, found.target);
  return found;
}

std::optional<std::string> RecordingTree::content(const std::string& path) const {
  auto text = source_.content(path);
  if (text) copy_.add_file(path, *text);
  return text;
}

std::vector<std::string> RecordingTree::names(const std::string& path) const {
  auto found = source_.names(path);
  copy_.add_directory(path);
  // What is in a directory is part of the answer, also what is never opened.
  for (const std::string& name : found) entry(path == "/" ? path + name : path + "/" + name);
  return found;
}

}  // namespace tutti::topology
