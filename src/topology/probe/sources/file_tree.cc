#include "topology/probe/sources/file_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace tutti::topology {
namespace {

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
    const std::string full = root_ + path;
    struct stat status {};
    if (lstat(full.c_str(), &status) != 0) return {};
    if (S_ISDIR(status.st_mode)) return {Kind::kDirectory, {}};
    if (S_ISREG(status.st_mode)) return {Kind::kFile, {}};
    if (!S_ISLNK(status.st_mode)) return {};
    std::array<char, kMostPath> target;
    const ssize_t length = readlink(full.c_str(), target.data(), target.size());
    if (length <= 0) return {};
    return {Kind::kLink, std::string(target.data(), static_cast<std::size_t>(length))};
  }

  std::optional<std::string> content(const std::string& path) const override {
    const int file = open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (file < 0) return {};
    // Sizes that sysfs and procfs tell are not true, so read to the end.
    std::string text;
    std::array<char, 65536> block;
    ssize_t got = 0;
    while (text.size() < kMostBytes && (got = ::read(file, block.data(), block.size())) > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    }
    close(file);
    if (got < 0) return {};
    return text;
  }

  std::vector<std::string> names(const std::string& path) const override {
    std::vector<std::string> found;
    DIR* const directory = opendir((root_ + path).c_str());
    if (directory == nullptr) return found;
    while (const dirent* const item = readdir(directory)) {
      const std::string_view name(item->d_name);
      if (name != "." && name != "..") found.emplace_back(name);
    }
    closedir(directory);
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::string root_;
};

}  // namespace

std::string normal_path(std::string_view path) {
  std::string normal;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      normal.resize(std::min(normal.size(), normal.rfind('/')));
      continue;
    }
    normal.append("/").append(part);
  }
  return normal.empty() ? "/" : normal;
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
  const std::size_t begin = whole->find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return whole->substr(begin, whole->find_last_not_of(" \t\r\n") - begin + 1);
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
