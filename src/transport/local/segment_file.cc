#include "transport/local/segment_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace tutti::segments {
namespace {

constexpr std::size_t kPage = 4096;

std::string reason(int error) { return std::generic_category().message(error); }

Error invalid(const std::string& what) {
  return {Code::kInvalidArgument, "register_memory: " + what};
}

/// A line of /proc/self/maps.
struct Line {
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t offset = 0, inode = 0;
  unsigned major = 0, minor = 0;
  char access[5] = {};
  std::string path;

  bool same_file(const Line& other) const {
    return inode == other.inode && major == other.major && minor == other.minor;
  }
};

bool parse(const std::string& text, Line& line) {
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  int path = 0;
  if (std::sscanf(text.c_str(), "%lx-%lx %4s %lx %x:%x %lu %n", &begin, &end, line.access, &offset,
                  &line.major, &line.minor, &inode, &path) < 7)
    return false;
  line.begin = begin;
  line.end = end;
  line.offset = offset;
  line.inode = inode;
  line.path = path > 0 ? text.substr(static_cast<std::size_t>(path)) : "";
  return true;
}

/// The lines for [begin, end); an error if a part of it is not mapped.
Result<std::vector<Line>> lines_of(std::uintptr_t begin, std::uintptr_t end) {
  std::ifstream maps("/proc/self/maps");
  if (!maps) return Error{Code::kSystem, "register_memory: /proc/self/maps can't be read"};
  std::vector<Line> lines;
  Line line;
  std::uintptr_t next = begin;  // Everything from begin to here is mapped.
  for (std::string text; next < end && std::getline(maps, text);) {
    if (!parse(text, line) || line.end <= next) continue;
    if (line.begin > next) break;
    next = line.end;
    lines.push_back(line);
  }
  if (next < end) return invalid(fmt::format("nothing is mapped at {:#x}", next));
  return lines;
}

/// A second mapping of the file, as a peer would make it. The kernel lists it with the same device
/// and inode as the user's mapping; stat may give others (btrfs, overlayfs).
class Sample {
 public:
  /// `grain`: offsets and lengths of mappings of the file are multiples of it.
  Sample(int fd, std::size_t offset, std::size_t grain)
      : bytes_(grain),
        base_(mmap(nullptr, grain, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                   static_cast<off_t>(offset / grain * grain))) {}
  ~Sample() {
    if (base_ != MAP_FAILED) munmap(base_, bytes_);
  }
  Sample(const Sample&) = delete;
  Sample& operator=(const Sample&) = delete;
  bool there() const { return base_ != MAP_FAILED; }
  std::uintptr_t at() const { return reinterpret_cast<std::uintptr_t>(base_); }

 private:
  std::size_t bytes_;
  void* base_;
};

/// The error in the part of the memory that this line describes; ok if there is none.
Status check_line(const Line& line, const Line& sample, std::uintptr_t begin,
                  std::uint64_t offset) {
  const std::string at = fmt::format("the memory at {:#x} ", std::max(begin, line.begin));
  if (line.access[3] != 's') return invalid(at + "is private to this process; map it MAP_SHARED");
  if (!line.same_file(sample)) {
    return invalid(at + "is no mapping of this descriptor's file but of " +
                   (line.path.empty() ? "another" : line.path));
  }
  const std::uint64_t mapped = line.offset + (std::max(begin, line.begin) - line.begin);
  const std::uint64_t given = offset + (std::max(begin, line.begin) - begin);
  if (mapped == given) return ok();
  return invalid(at + fmt::format("is a mapping of offset {} of the file, not {}", mapped, given));
}

}  // namespace

Result<int> make_file(std::size_t bytes, const char* what) {
  rlimit limit{};
  // A file beyond this limit is not an error but a signal, SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    return Error{Code::kSystem,
                 fmt::format("{}: {} bytes of shared memory are more than a file may have here, {} "
                             "bytes; raise that limit (ulimit -f, RLIMIT_FSIZE)",
                             what, bytes, limit.rlim_cur)};
  }
  const int fd = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Error{Code::kSystem, fmt::format("{}: memfd_create: {}", what, reason(errno))};
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    ::close(fd);
    return Error{Code::kSystem, fmt::format("{}: {} bytes: {}", what, bytes, reason(error))};
  }
  // Sealed, so that no peer can cut it short under our feet.
  fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

Status check_mapping(const void* data, std::size_t bytes, int fd, std::size_t offset) {
  struct stat file {};
  if (fstat(fd, &file) != 0)
    return Error{Code::kInvalidArgument,
                 fmt::format("register_memory: descriptor {}: {}", fd, reason(errno))};
  if (!S_ISREG(file.st_mode)) {
    return Error{Code::kUnsupported,
                 fmt::format("register_memory: descriptor {} is no file; memfd_create makes one "
                             "that peers can map",
                             fd)};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  if (bytes > UINTPTR_MAX - begin) return invalid("the memory ends beyond the address space");
  if (offset + bytes < offset || static_cast<std::uint64_t>(file.st_size) < offset + bytes) {
    return invalid(fmt::format("the file has {} bytes, and ends before offset {} + {} bytes",
                               file.st_size, offset, bytes));
  }
  // Read them before there is a sample: the kernel could put that into a hole of the memory.
  TUTTI_TRY(const auto of_memory, lines_of(begin, begin + bytes));
  // For huge pages it is their size.
  const std::size_t grain = std::max(kPage, static_cast<std::size_t>(file.st_blksize));
  const Sample sample(fd, offset, grain);
  if (!sample.there()) {
    return invalid(fmt::format("peers can't map descriptor {} for reading and writing: {}", fd,
                               reason(errno)));
  }
  TUTTI_TRY(const auto of_sample, lines_of(sample.at(), sample.at() + 1));
  for (const Line& one : of_memory)
    TUTTI_RETURN_IF_ERROR(check_line(one, of_sample.front(), begin, offset));
  return ok();
}

}  // namespace tutti::segments
