#include "transport/local/segments.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/fork.h"
#include "base/mapped_memory.h"
#include "transport/local/segment_server.h"

namespace tutti::segments {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// The segments that this process exports, by address.
constinit std::mutex table_mutex;
const HeldAcrossFork table_held(ForkOrder::kSegments, []() -> std::mutex& { return table_mutex; });
struct Table {
  std::map<std::uintptr_t, Entry> entries;
  std::map<std::uint64_t, Entry> offered;  // By id: what is nowhere in this address space.
  std::uint64_t next_id = 1;
  std::atomic<std::uint64_t> version{1};
};
Table& table() {
  static auto* instance = new Table();  // Never destroyed: the serving thread may outlive main.
  return *instance;
}
// Made while the library is loaded, when no other thread can fork.
[[maybe_unused]] const Table& made_early = table();

std::atomic<std::uint32_t>& flag_of(std::byte* base, std::size_t bytes) {
  return *reinterpret_cast<std::atomic<std::uint32_t>*>(base + round_up(bytes));
}

Error system_error(const std::string& what, int error) {
  return {Code::kSystem, what + ": " + std::generic_category().message(error)};
}

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

/// A new memfd of that many bytes, sealed against changes of its size. The caller closes it. An
/// error begins with `what`.
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

/// Checks that [data, data + bytes) is a shared mapping of the file `fd` at `offset`, and that
/// peers can map it for reading and writing. kInvalidArgument says what it is instead. It reads the
/// kernel's list of mappings, not the memory, which other threads may use meanwhile.
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
  // A second mapping of the file, as a peer would make it. The kernel lists it with the same device
  // and inode as the user's mapping; stat may give others (btrfs, overlayfs). Offsets and lengths
  // of mappings of the file are multiples of the grain.
  const MappedMemory sample =
      map_memory(grain, MAP_SHARED | MAP_NORESERVE, fd, offset / grain * grain);
  if (sample == nullptr) {
    return invalid(fmt::format("peers can't map descriptor {} for reading and writing: {}", fd,
                               reason(errno)));
  }
  const auto sampled = reinterpret_cast<std::uintptr_t>(sample.get());
  TUTTI_TRY(const auto of_sample, lines_of(sampled, sampled + 1));
  for (const Line& one : of_memory)
    TUTTI_RETURN_IF_ERROR(check_line(one, of_sample.front(), begin, offset));
  return ok();
}

}  // namespace

Mapping::Mapping(Fd fd, std::byte* base, std::size_t bytes, std::size_t offset, bool has_flag)
    : fd_(std::move(fd)), memory_(base, Extent{bytes, offset, has_flag}) {
  // As in `allocate`: an earlier owner of memory at this address is done with it.
  const std::lock_guard lock(table_mutex);
}

void Mapping::Extent::operator()(std::byte* base) const {
  const std::lock_guard lock(table_mutex);  // See `allocate`.
  munmap(base, mapped_bytes(bytes, offset, has_flag));
}

bool Mapping::alive() const {
  // relaxed: only a hint that the mapping may be dropped.
  return !has_flag() || flag_of(memory_.get(), bytes()).load(std::memory_order_relaxed) != 0;
}
std::size_t mapped_bytes(std::size_t bytes, std::size_t offset, bool has_flag) {
  return has_flag ? round_up(bytes) + kPage : round_up(offset + bytes);
}

Result<void*> allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > (std::size_t{1} << 46)) {
    return Error{Code::kInvalidArgument,
                 "mem_alloc: bytes must be in 1 .. 2^46, got " + std::to_string(bytes)};
  }
  const std::size_t total = mapped_bytes(bytes, 0, true);
  TUTTI_TRY(const int descriptor, make_file(total, "mem_alloc"));
  Fd file(descriptor);
  MappedMemory mapping = map_memory(total, MAP_SHARED, file.get());
  if (mapping == nullptr)
    return system_error("mem_alloc: mapping " + std::to_string(bytes) + " bytes", errno);
  std::byte* const data = mapping.get();
  madvise(data, total, MADV_HUGEPAGE);  // Best effort: fewer TLB misses where the system allows it.
  // Under the lock that memory is unmapped under: what another rank had at this address is not
  // written before that rank is done with it, in the eyes of the thread sanitizer too.
  const std::lock_guard lock(table_mutex);
  flag_of(data, bytes).store(1, std::memory_order_relaxed);
  table().entries[reinterpret_cast<std::uintptr_t>(data)] = {table().next_id++, file.get(), bytes,
                                                             0, true};
  table().version.fetch_add(
      1, std::memory_order_release);  // release: a thread that sees it finds the entry.
  (void)file.release();
  return static_cast<void*>(mapping.release());
}

Status free(void* data) {
  const std::lock_guard lock(table_mutex);
  const auto found = table().entries.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == table().entries.end() || !found->second.owned) {
    return Error{Code::kInvalidArgument, "mem_free: this pointer was not returned by mem_alloc"};
  }
  const Entry entry = found->second;
  flag_of(static_cast<std::byte*>(data), entry.bytes).store(0, std::memory_order_relaxed);
  table().entries.erase(found);
  table().version.fetch_add(1, std::memory_order_release);
  munmap(data, mapped_bytes(entry.bytes, 0, true));
  ::close(entry.fd);
  return ok();
}

Status add(void* data, std::size_t bytes, int fd, std::size_t offset) {
  if (data == nullptr || bytes == 0)
    return Error{Code::kInvalidArgument, "register_memory: no memory given"};
  TUTTI_RETURN_IF_ERROR(check_mapping(data, bytes, fd, offset));
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return system_error("register_memory: duplicating the descriptor", errno);
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(table_mutex);
  auto next = table().entries.lower_bound(begin);
  const bool overlaps = (next != table().entries.end() && next->first < begin + bytes) ||
                        (next != table().entries.begin() &&
                         std::prev(next)->first + std::prev(next)->second.bytes > begin);
  if (overlaps) {
    return Error{Code::kInvalidArgument,
                 "register_memory: part of this memory is registered already"};
  }
  table().entries[begin] = {table().next_id++, copy.get(), bytes, offset, false};
  (void)copy.release();
  table().version.fetch_add(1, std::memory_order_release);
  return ok();
}

Status remove(void* data) {
  const std::lock_guard lock(table_mutex);
  const auto found = table().entries.find(reinterpret_cast<std::uintptr_t>(data));
  if (found == table().entries.end() || found->second.owned) {
    return Error{Code::kInvalidArgument, "deregister_memory: this pointer was not registered"};
  }
  ::close(found->second.fd);
  table().entries.erase(found);
  table().version.fetch_add(1, std::memory_order_release);
  return ok();
}

std::uint64_t id_of(const void* data) {
  const std::lock_guard lock(table_mutex);
  const auto found = table().entries.find(reinterpret_cast<std::uintptr_t>(data));
  return found == table().entries.end() ? 0 : found->second.id;
}

std::uint64_t version() {
  // acquire: pairs with the releases above.
  return table().version.load(std::memory_order_acquire);
}

std::vector<Segment> snapshot() {
  const std::lock_guard lock(table_mutex);
  std::vector<Segment> segments;
  segments.reserve(table().entries.size());
  for (const auto& [begin, entry] : table().entries)
    segments.push_back({begin, begin + entry.bytes, entry.id});
  return segments;
}

std::uint64_t offer(const std::vector<int>& fds, const std::vector<std::size_t>& bytes) {
  const std::lock_guard lock(table_mutex);
  const std::uint64_t first = table().next_id;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    const std::uint64_t id = table().next_id++;
    table().offered[id] = {id, fds[i], bytes[i], 0, false};
  }
  return first;
}

void withdraw(std::uint64_t first, std::size_t count) {
  const std::lock_guard lock(table_mutex);
  const auto begin = table().offered.lower_bound(first);
  const auto end = table().offered.lower_bound(first + count);
  for (auto at = begin; at != end; ++at) ::close(at->second.fd);
  table().offered.erase(begin, end);
}

bool find_entry(std::uint64_t id, Entry* entry) {
  const std::lock_guard lock(table_mutex);
  const auto copy = [entry](const Entry& found) {
    *entry = found;
    entry->fd =
        fcntl(found.fd, F_DUPFD_CLOEXEC, 0);  // Ours, should the segment be freed meanwhile.
    return entry->fd >= 0;
  };
  if (const auto found = table().offered.find(id); found != table().offered.end())
    return copy(found->second);
  for (const auto& [begin, candidate] : table().entries) {
    if (candidate.id == id) return copy(candidate);
  }
  return false;
}

}  // namespace tutti::segments
