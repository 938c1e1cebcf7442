#include "transport/ucx/forked.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

namespace tutti::ucx {
namespace {

// The worker's epoll, those of its devices, and one more for other versions of UCX.
constexpr int kDeepest = 3;

/// The number that follows `name` in a line; -1: there is none.
std::int64_t number_after(std::string_view line, std::string_view name, int base) {
  const auto at = line.find(name);
  if (at == std::string_view::npos) return -1;
  line.remove_prefix(at + name.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::int64_t value = -1;
  std::from_chars(line.data(), line.data() + line.size(), value, base);
  return value;
}

void close_below(int epoll, int depth);

/// One line: "tfd:        7 events:       19 data: 55d0  pos:0 ino:3f8 sdev:8".
void close_watched(std::string_view line, int depth) {
  const auto watched = static_cast<int>(number_after(line, "tfd:", 10));
  struct stat status {};
  if (watched < 0 || ::fstat(watched, &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) return close_below(watched, depth + 1);
  // The number may be another file's by now, if UCX has closed that socket.
  if (static_cast<std::int64_t>(status.st_ino) == number_after(line, "ino:", 16)) ::close(watched);
}

/// Runs in a child that has just been forked: no memory, no locks.
void close_below(int epoll, int depth) {
  std::array<char, 64> path{"/proc/self/fdinfo/"};
  char* const number = path.data() + std::string_view(path.data()).size();
  *std::to_chars(number, path.data() + path.size() - 1, epoll).ptr = '\0';
  const int file = depth > kDeepest ? -1 : ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::array<char, 512> buffer;
  std::size_t filled = 0;
  for (ssize_t got = 1; got > 0;) {
    got = ::read(file, buffer.data() + filled, buffer.size() - filled);
    if (got > 0) filled += static_cast<std::size_t>(got);
    std::string_view text(buffer.data(), filled);
    for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      close_watched(text.substr(0, end), depth);
      text.remove_prefix(end + 1);
    }
    filled = text.size() == buffer.size() ? 0 : text.size();  // No line is that long.
    std::copy(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(filled), buffer.begin());
  }
  ::close(file);
}

using Workers = ForkedList<SocketsClosedInChild>;
const HeldAcrossFork workers_held(ForkOrder::kWorkers, Workers::mutex, Workers::in_child);

}  // namespace

SocketsClosedInChild::SocketsClosedInChild(int events) : events_(events) { Workers::add(*this); }
SocketsClosedInChild::~SocketsClosedInChild() { Workers::remove(*this); }
void SocketsClosedInChild::in_child() { close_below(events_, 0); }

}  // namespace tutti::ucx
