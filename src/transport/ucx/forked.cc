#include "transport/ucx/forked.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/fork.h"

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

}  // namespace

/// A list through the objects themselves: the child neither allocates nor frees.
struct ForkedWorkers {
  static constinit std::mutex mutex;
  static constinit SocketsClosedInChild* first;

  static void close_all() {
    for (const auto* at = first; at != nullptr; at = at->next_) close_below(at->events_, 0);
  }
  static void add(SocketsClosedInChild& one) {
    const std::lock_guard lock(mutex);
    one.next_ = first;
    if (first != nullptr) first->previous_ = &one;
    first = &one;
  }
  static void remove(SocketsClosedInChild& one) {
    const std::lock_guard lock(mutex);
    (one.previous_ == nullptr ? first : one.previous_->next_) = one.next_;
    if (one.next_ != nullptr) one.next_->previous_ = one.previous_;
  }
};
constinit std::mutex ForkedWorkers::mutex;
constinit SocketsClosedInChild* ForkedWorkers::first = nullptr;

namespace {

const HeldAcrossFork workers_held(
    ForkOrder::kWorkers, []() -> std::mutex& { return ForkedWorkers::mutex; },
    ForkedWorkers::close_all);

}  // namespace

SocketsClosedInChild::SocketsClosedInChild(int events) : events_(events) {
  ForkedWorkers::add(*this);
}
SocketsClosedInChild::~SocketsClosedInChild() { ForkedWorkers::remove(*this); }

}  // namespace tutti::ucx
