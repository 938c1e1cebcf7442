// Descriptors: waiting for them, files that say what machine this is, mappings.
#include "virtual/kernel/files.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "virtual/kernel/faults.h"
#include "virtual/kernel/network.h"
#include "virtual/kernel/raw.h"
#include "virtual/kernel/real.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt {
namespace {

int fail(int error) {
  errno = error;
  return -1;
}

// What only this process has; a fork copies it, as the kernel does.

struct SharedMapping {
  std::uintptr_t begin = 0, end = 0;
  std::uint64_t file = 0, offset = 0;
};
std::vector<SharedMapping>& mappings() {
  static auto* const all = new std::vector<SharedMapping>();  // Never destroyed: exits use it.
  return *all;
}

struct Watched {
  int fd;
  epoll_event event;
};
struct EpollSet {
  int fd;
  std::vector<Watched> watched;
};
std::vector<EpollSet>& epolls() {
  static auto* const all = new std::vector<EpollSet>();  // Never destroyed: exits use it.
  return *all;
}
EpollSet* epoll_set(int fd) {
  for (EpollSet& set : epolls()) {
    if (set.fd == fd) return &set;
  }
  return nullptr;
}

/// The events of each descriptor that hold now; how many descriptors have some.
int look(pollfd* set, std::size_t count, bool* real) {
  int found = 0;
  *real = false;
  for (std::size_t i = 0; i < count; ++i) {
    pollfd& one = set[i];
    one.revents = 0;
    if (one.fd < 0) continue;
    if (const int socket = files::socket_of(one.fd); socket >= 0) {
      one.revents = static_cast<short>(net::ready(socket) & (one.events | POLLERR | POLLHUP));
    } else {
      *real = true;
      const timespec none{};
      raw(SYS_ppoll, &one, 1, &none, nullptr, 0);
    }
    if (one.revents != 0) ++found;
  }
  return found;
}

int poll_until(pollfd* set, std::size_t count, Time until) {
  for (;;) {
    bool real = false;
    if (const int found = look(set, count, &real); found > 0 || until <= world->now) return found;
    self->item_count = 0;
    self->polls_real = real;
    for (std::size_t i = 0; i < count; ++i) {
      const int socket = set[i].fd < 0 ? -1 : files::socket_of(set[i].fd);
      if (socket < 0) continue;
      if (self->item_count == world->most_items) std::abort();
      self->items[self->item_count++] = {socket, set[i].events};
    }
    (void)wait_until(Wait::kSockets, until);
  }
}

Time until_ms(int timeout_ms) {
  return timeout_ms < 0 ? kNever : world->now + static_cast<Time>(timeout_ms) * kMilli;
}

/// What a file of the virtual machine says; null: it is the real machine's.
const char* virtual_text(std::string_view path, char* room, std::size_t bytes) {
  const int host = own_process().host;
  if (path == "/proc/sys/kernel/random/boot_id") {
    std::snprintf(room, bytes, "00000000-0000-4000-8000-%012d\n", host);
    return room;
  }
  if (path.starts_with("/sys/class/net/eth") && path.ends_with("/speed")) return "10000\n";
  return nullptr;
}

}  // namespace

namespace files {

int place_holder(int socket, int flags) {
  if (socket < 0) return fail(-socket);
  const int fd = static_cast<int>(raw_errno(SYS_eventfd2, 0, flags));
  if (fd >= 0 && fd < world->most_descriptors) {
    descriptor(fd) = Descriptor::kFirstSocket + socket;
    return fd;
  }
  if (fd >= 0) raw(SYS_close, fd);
  net::release(socket);
  return fd < 0 ? fd : fail(EMFILE);
}

std::int32_t& descriptor(int fd) { return own_process().descriptors[fd]; }

int socket_of(int fd) {
  if (!active() || fd < 0 || fd >= world->most_descriptors) return -1;
  return std::max(descriptor(fd) - Descriptor::kFirstSocket, -1);
}

bool is_nonblocking(int fd) { return (raw(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK) != 0; }

bool shared_place(const void* address, std::uint64_t key[2]) {
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  for (const SharedMapping& one : mappings()) {
    if (place < one.begin || place >= one.end) continue;
    key[0] = one.file;
    key[1] = one.offset + (place - one.begin);
    return true;
  }
  return false;
}

void forget_in_epolls(int fd) {
  for (EpollSet& set : epolls())
    std::erase_if(set.watched, [fd](const Watched& one) { return one.fd == fd; });
}

void close_all(Process& process) {
  for (int fd = 0; fd < world->most_descriptors; ++fd) {
    const std::int32_t what = std::exchange(process.descriptors[fd], Descriptor::kUnknown);
    if (what >= Descriptor::kFirstSocket) net::release(what - Descriptor::kFirstSocket);
  }
}

void copy_all(const Process& from, Process& to) {
  for (int fd = 0; fd < world->most_descriptors; ++fd) {
    const std::int32_t what = to.descriptors[fd] = from.descriptors[fd];
    if (what < Descriptor::kFirstSocket) continue;
    net::hold(what - Descriptor::kFirstSocket);
    world->sockets[what - Descriptor::kFirstSocket].shared = true;
  }
}

bool wait_for(int fd, short events, Time until) {
  pollfd one{fd, events, 0};
  return poll_until(&one, 1, until) > 0;
}

}  // namespace files
}  // namespace tutti::virt

using namespace tutti::virt;  // NOLINT(google-build-using-namespace): the C library's names follow.

extern "C" {

int poll(pollfd* set, nfds_t count, int timeout_ms) {
  if (!active()) return static_cast<int>(raw_errno(SYS_poll, set, count, timeout_ms));
  point("poll");
  if (faults::interrupts()) return fail(EINTR);
  return poll_until(set, count, until_ms(timeout_ms));
}

int ppoll(pollfd* set, nfds_t count, const timespec* span, const sigset_t* mask) {
  if (!active()) return static_cast<int>(raw_errno(SYS_ppoll, set, count, span, mask, 8));
  point("poll");
  if (faults::interrupts()) return fail(EINTR);
  const Time until = span == nullptr ? kNever
                                     : world->now + static_cast<Time>(span->tv_sec) * kSecond +
                                           static_cast<Time>(span->tv_nsec);
  return poll_until(set, count, until);
}

int epoll_create1(int flags) noexcept {
  if (active() && faults::refuses("refuse epoll")) return fail(EMFILE);
  const int fd = static_cast<int>(raw_errno(SYS_epoll_create1, flags));
  if (!active() || fd < 0) return fd;
  files::descriptor(fd) = Descriptor::kEpoll;
  epolls().push_back({fd, {}});
  return fd;
}

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  EpollSet* const set = active() ? epoll_set(epoll) : nullptr;
  if (set == nullptr)
    return static_cast<int>(raw_errno(SYS_epoll_ctl, epoll, operation, fd, event));
  const auto found = std::find_if(set->watched.begin(), set->watched.end(),
                                  [fd](const Watched& one) { return one.fd == fd; });
  const bool there = found != set->watched.end();
  if (operation == EPOLL_CTL_ADD) {
    if (there) return fail(EEXIST);
    if (faults::refuses("refuse watch")) return fail(ENOMEM);
    set->watched.push_back({fd, *event});
    return 0;
  }
  if (!there) return fail(ENOENT);
  if (operation == EPOLL_CTL_MOD)
    found->event = *event;
  else
    set->watched.erase(found);
  return 0;
}

int epoll_wait(int epoll, epoll_event* events, int most, int timeout_ms) {
  if (!active())
    return static_cast<int>(raw_errno(SYS_epoll_wait, epoll, events, most, timeout_ms));
  point("epoll");
  if (epoll_set(epoll) == nullptr) return fail(EBADF);
  if (faults::interrupts()) return fail(EINTR);
  std::vector<pollfd> polled;
  for (const Watched& one : epoll_set(epoll)->watched)
    polled.push_back({one.fd, static_cast<short>(one.event.events), 0});
  if (poll_until(polled.data(), polled.size(), until_ms(timeout_ms)) <= 0) return 0;
  int count = 0;
  const std::size_t start = world->random.below(polled.size());
  for (std::size_t i = 0; i < polled.size() && count < most; ++i) {
    const pollfd& one = polled[(start + i) % polled.size()];
    const EpollSet* const set = epoll_set(epoll);  // Other threads may have changed it.
    if (one.revents == 0 || set == nullptr) continue;
    for (const Watched& watched : set->watched) {
      if (watched.fd != one.fd) continue;
      events[count++] = {static_cast<std::uint32_t>(static_cast<unsigned short>(one.revents)),
                         watched.event.data};
    }
  }
  return count;
}

int eventfd(unsigned value, int flags) noexcept {
  if (active() && faults::refuses("refuse eventfd")) return fail(EMFILE);
  if (!active()) return static_cast<int>(raw_errno(SYS_eventfd2, value, flags));
  return files::place_holder(net::create_event(self->process, value), flags);
}

ssize_t read(int fd, void* to, std::size_t bytes) {
  if (const int socket = files::socket_of(fd); socket >= 0) {
    if (!net::is_event(socket)) return recv(fd, to, bytes, 0);
    const std::uint64_t count = net::take_event(socket);
    if (count == 0) return fail(EAGAIN);  // No program waits in read for one of these.
    std::memcpy(to, &count, sizeof(count));
    return sizeof(count);
  }
  return raw_errno(SYS_read, fd, to, bytes);
}

ssize_t write(int fd, const void* data, std::size_t bytes) {
  if (const int socket = files::socket_of(fd); socket >= 0) {
    if (!net::is_event(socket)) return send(fd, data, bytes, 0);
    std::uint64_t count = 0;
    std::memcpy(&count, data, std::min(bytes, sizeof(count)));
    point("event");
    net::add_event(socket, count);
    return sizeof(count);
  }
  const long written = raw_errno(SYS_write, fd, data, bytes);
  if (active() && fd >= 0 && fd < world->most_descriptors &&
      files::descriptor(fd) == Descriptor::kWakes)
    real_change();
  return written;
}

int close(int fd) {
  if (!active() || fd < 0 || fd >= world->most_descriptors)
    return static_cast<int>(raw_errno(SYS_close, fd));
  const std::int32_t what = std::exchange(files::descriptor(fd), Descriptor::kUnknown);
  files::forget_in_epolls(fd);
  if (what >= Descriptor::kFirstSocket) {
    note("close", what - Descriptor::kFirstSocket);
    net::release(what - Descriptor::kFirstSocket);
  }
  if (what == Descriptor::kEpoll)
    std::erase_if(epolls(), [fd](const EpollSet& set) { return set.fd == fd; });
  const long result = raw_errno(SYS_close, fd);
  if (what == Descriptor::kWakes) real_change();
  return static_cast<int>(result);
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  const long argument = va_arg(list, long);
  va_end(list);
  const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (active() && copies) {
    point("dup");
    if (faults::refuses("refuse dup")) return fail(EMFILE);
  }
  const long result = raw_errno(SYS_fcntl, fd, command, argument);
  if (!active() || !copies || result < 0) return static_cast<int>(result);
  const std::int32_t what = files::descriptor(fd);
  files::descriptor(static_cast<int>(result)) = what;
  if (what >= Descriptor::kFirstSocket) net::hold(what - Descriptor::kFirstSocket);
  return static_cast<int>(result);
}

int flock(int fd, int how) noexcept {
  for (;;) {
    const long result = raw(SYS_flock, fd, active() ? how | LOCK_NB : how);
    if (result == 0) return 0;
    const bool waits = active() && result == -EWOULDBLOCK && (how & LOCK_NB) == 0;
    if (!waits) return fail(static_cast<int>(-result));
    (void)wait_until(Wait::kTime, world->now + kMilli);
  }
}

int memfd_create(const char* name, unsigned flags) noexcept {
  if (active()) {
    point("memfd");
    if (faults::refuses("refuse memfd")) return fail(ENOMEM);
  }
  return static_cast<int>(raw_errno(SYS_memfd_create, name, flags));
}

int ftruncate(int fd, off_t bytes) noexcept {
  if (active()) {
    point("ftruncate");
    if (faults::refuses("refuse size")) return fail(ENOSPC);
  }
  return static_cast<int>(raw_errno(SYS_ftruncate, fd, bytes));
}

void* mmap(void* address, std::size_t bytes, int protection, int flags, int fd,
           off_t offset) noexcept {
  if (active() && fd >= 0) {
    point("mmap");
    if (faults::refuses("refuse mmap")) {
      errno = ENOMEM;
      return MAP_FAILED;
    }
  }
  const long place = raw_errno(SYS_mmap, address, bytes, protection, flags, fd, offset);
  if (active() && place != -1 && fd >= 0 && (flags & MAP_SHARED) != 0) {
    struct stat file {};
    if (fstat(fd, &file) == 0) {
      const auto begin = static_cast<std::uintptr_t>(place);
      mappings().push_back({begin, begin + bytes, file.st_ino, static_cast<std::uint64_t>(offset)});
    }
  }
  return reinterpret_cast<void*>(place);
}

int munmap(void* address, std::size_t bytes) noexcept {
  if (active()) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    std::erase_if(mappings(), [&](const SharedMapping& one) {
      return one.begin < begin + bytes && begin < one.end;
    });
  }
  return static_cast<int>(raw_errno(SYS_munmap, address, bytes));
}

int stat(const char* __restrict path, struct stat* __restrict to) noexcept {
  const long result = raw_errno(SYS_newfstatat, AT_FDCWD, path, to, 0);
  if (active() && result == 0 && std::string_view(path) == "/proc/self/ns/net")
    to->st_ino = static_cast<ino_t>(1000 + own_process().host);
  return static_cast<int>(result);
}

FILE* fopen64(const char* __restrict path, const char* __restrict mode) {
  if (active()) {
    char room[64];
    if (const char* const text = virtual_text(path, room, sizeof(room)); text != nullptr) {
      const int fd = static_cast<int>(raw_errno(SYS_memfd_create, "virtual", 0));
      raw(SYS_write, fd, text, std::strlen(text));
      raw(SYS_lseek, fd, 0, SEEK_SET);
      return fdopen(fd, mode);
    }
    const std::string_view named(path);
    if (named.starts_with("/sys/") || named == "/proc/self/cgroup") {
      errno = ENOENT;
      return nullptr;
    }
  }
  return TUTTI_REAL(fopen64)(path, mode);
}

int gethostname(char* to, std::size_t bytes) noexcept {
  if (!active()) return TUTTI_REAL(gethostname)(to, bytes);
  std::snprintf(to, bytes, "host-%d", own_process().host);
  return 0;
}

}  // extern "C"
