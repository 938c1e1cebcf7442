#include "topology/capture/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>

#include <array>
#include <fstream>

#include "base/output.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

struct Closer {
  void operator()(archive* handle) const { archive_free(handle); }
  void operator()(archive_entry* entry) const { archive_entry_free(entry); }
};
using Handle = std::unique_ptr<archive, Closer>;
using EntryHandle = std::unique_ptr<archive_entry, Closer>;

template <class... Args>
Error bad(std::string_view source, fmt::format_string<Args...> what, Args&&... args) {
  return invalid("{}: {}", source, fmt::format(what, std::forward<Args>(args)...));
}

std::string library_error(archive* handle) {
  const char* const text = archive_error_string(handle);
  std::string line = text == nullptr ? "the archive library says no more" : text;
  for (char& c : line) {
    if (c < ' ' || c > '~') c = ' ';  // Names of an archive may be in the message.
  }
  return line;
}

Result<std::string> entry_content(archive* handle, std::string_view source,
                                  const std::string& path) {
  std::string content;
  std::array<char, 16384> block;
  for (;;) {
    const la_ssize_t got = archive_read_data(handle, block.data(), block.size());
    if (got < 0) return bad(source, "the archive is damaged: {}", library_error(handle));
    if (got == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(got));
    if (content.size() > FileTree::kMostBytes) {
      return bad(source, "{:.200} is larger than {} MiB; no file of a topology is", path,
                 FileTree::kMostBytes >> 20);
    }
  }
}

// Adds one entry; what is neither file, directory nor link (a device, a socket) is left out.
Status add_entry(MemoryTree& tree, archive* handle, archive_entry* entry, std::string_view source,
                 std::size_t& total) {
  const char* const name = archive_entry_pathname(entry);
  if (name == nullptr) return bad(source, "an entry has no name that can be read");
  const std::string path = normal_path(name);
  total += path.size();
  if (path.size() > 4096) return bad(source, "a path is longer than 4096 bytes");
  if (path == "/") return ok();
  if (const char* const target = archive_entry_hardlink(entry)) {
    tree.add_link(path, normal_path(target));
  } else if (archive_entry_filetype(entry) == AE_IFLNK) {
    const char* const link = archive_entry_symlink(entry);
    if (link != nullptr) tree.add_link(path, link);
  } else if (archive_entry_filetype(entry) == AE_IFDIR) {
    tree.add_directory(path);
  } else if (archive_entry_filetype(entry) == AE_IFREG) {
    TUTTI_TRY(std::string content, entry_content(handle, source, path));
    total += content.size();
    tree.add_file(path, std::move(content));
  }
  if (total > kMostArchiveBytes) {
    return bad(source, "unpacked it has more than {} MiB; a topology has not",
               kMostArchiveBytes >> 20);
  }
  return ok();
}

// The tree below its one top directory, if it has only one and that is not the top of a system.
std::unique_ptr<MemoryTree> without_top(std::unique_ptr<MemoryTree> tree) {
  const auto top = tree->names("/");
  if (top.size() != 1 || top[0] == "sys" || top[0] == "proc" || top[0] == "tutti") return tree;
  const std::string prefix = "/" + top[0];
  if (tree->entry(prefix).kind != FileTree::Kind::kDirectory) return tree;
  auto inner = std::make_unique<MemoryTree>();
  for (const auto& [path, item] : tree->items()) {
    if (path.size() <= prefix.size()) continue;
    const std::string shorter = path.substr(prefix.size());
    if (item.kind == FileTree::Kind::kFile) inner->add_file(shorter, item.text);
    if (item.kind == FileTree::Kind::kDirectory) inner->add_directory(shorter);
    if (item.kind == FileTree::Kind::kLink) {
      // A hard link's target is a path of the archive; a symbolic one's never starts so in sysfs.
      const bool inside = item.text.compare(0, prefix.size() + 1, prefix + "/") == 0;
      inner->add_link(shorter, inside ? item.text.substr(prefix.size()) : item.text);
    }
  }
  return inner;
}

}  // namespace

Result<std::unique_ptr<MemoryTree>> read_archive(std::string_view bytes, std::string_view source) {
  const Handle handle(archive_read_new());
  if (handle == nullptr) return bad(source, "no memory to read an archive");
  archive_read_support_format_tar(handle.get());
  archive_read_support_filter_bzip2(handle.get());
  archive_read_support_filter_gzip(handle.get());
  archive_read_support_filter_xz(handle.get());
  if (archive_read_open_memory(handle.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
    return bad(source, "this is no tar archive: {}", library_error(handle.get()));
  }
  auto tree = std::make_unique<MemoryTree>();
  std::size_t total = 0;
  for (std::size_t count = 0;; ++count) {
    archive_entry* entry = nullptr;
    const int got = archive_read_next_header(handle.get(), &entry);
    if (got == ARCHIVE_EOF) break;
    if (got != ARCHIVE_OK && got != ARCHIVE_WARN) {
      return bad(source, "the archive is damaged: {}", library_error(handle.get()));
    }
    if (count == kMostArchiveEntries) {
      return bad(source, "it has more than {} entries", kMostArchiveEntries);
    }
    TUTTI_RETURN_IF_ERROR(add_entry(*tree, handle.get(), entry, source, total));
  }
  if (tree->items().empty()) return bad(source, "the archive is empty");
  return without_top(std::move(tree));
}

Result<std::unique_ptr<MemoryTree>> read_archive_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad(path, "can't be opened for reading");
  std::string bytes;
  std::array<char, 16384> block;
  while (file.read(block.data(), block.size()) || file.gcount() > 0) {
    bytes.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (bytes.size() > kMostArchiveBytes) {
      return bad(path, "is larger than {} MiB", kMostArchiveBytes >> 20);
    }
  }
  return read_archive(bytes, path);
}

Status write_archive(const MemoryTree& tree, const std::string& path) {
  const Handle handle(archive_write_new());
  const auto failed = [&] {
    return Error{
        Code::kSystem, fmt::format("writing {}: {}", path, library_error(handle.get())), {}, {}};
  };
  archive_write_set_format_pax_restricted(handle.get());
  if (path.ends_with("bz2")) archive_write_add_filter_bzip2(handle.get());
  if (path.ends_with("gz")) archive_write_add_filter_gzip(handle.get());
  std::string bytes;
  const auto append = [](archive*, void* to, const void* data, std::size_t size) -> la_ssize_t {
    static_cast<std::string*>(to)->append(static_cast<const char*>(data), size);
    return static_cast<la_ssize_t>(size);
  };
  archive_write_set_bytes_in_last_block(handle.get(), 1);  // No padding to whole blocks.
  if (archive_write_open(handle.get(), &bytes, nullptr, append, nullptr) != ARCHIVE_OK)
    return failed();
  for (const auto& [name, item] : tree.items()) {
    const EntryHandle entry(archive_entry_new());
    archive_entry_set_pathname(entry.get(), name.c_str() + 1);  // No leading slash.
    if (item.kind == FileTree::Kind::kLink) {
      archive_entry_set_filetype(entry.get(), AE_IFLNK);
      archive_entry_set_symlink(entry.get(), item.text.c_str());
    } else {
      const bool directory = item.kind == FileTree::Kind::kDirectory;
      archive_entry_set_filetype(entry.get(), directory ? AE_IFDIR : AE_IFREG);
      archive_entry_set_size(entry.get(), static_cast<la_int64_t>(item.text.size()));
    }
    archive_entry_set_perm(entry.get(), item.kind == FileTree::Kind::kDirectory ? 0755 : 0644);
    if (archive_write_header(handle.get(), entry.get()) != ARCHIVE_OK) return failed();
    if (item.kind == FileTree::Kind::kFile &&
        archive_write_data(handle.get(), item.text.data(), item.text.size()) !=
            static_cast<la_ssize_t>(item.text.size())) {
      return failed();
    }
  }
  if (archive_write_close(handle.get()) != ARCHIVE_OK) return failed();
  return write_file(path, bytes);
}

}  // namespace tutti::topology
