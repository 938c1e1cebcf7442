// Hands memfds to peers of the same user who know the token, and fetches theirs.
#include "transport/segment_server.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "base/threads.h"
#include "transport/segments.h"

namespace tutti::segments {
namespace {

constexpr std::chrono::seconds kAnswerTime{1};         // That one peer may take.
constexpr std::chrono::milliseconds kGlance{20};       // Between looks at whether to give up.
constexpr std::chrono::milliseconds kAcceptPause{20};  // Between attempts that can't succeed.

struct Question {
  std::array<std::byte, 16> token{};
  std::uint64_t id = 0;
};
struct Answer {
  std::uint64_t found = 0, bytes = 0, offset = 0, owned = 0;
};

struct Socket {
  explicit Socket(int descriptor) : fd(descriptor) {}
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd;
};

socklen_t abstract_name(const Address& address, sockaddr_un* name) {
  *name = {};
  name->sun_family = AF_UNIX;
  const std::size_t length = strnlen(address.socket.data(), address.socket.size());
  std::memcpy(name->sun_path + 1, address.socket.data(), length);  // A leading 0 makes it abstract.
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

bool same_user(int fd) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

void limit_time(int fd, std::chrono::milliseconds span) {
  const timeval time{span.count() / 1000, span.count() % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

/// `call`, a system call, again while signals interrupt it: the kernel never does that by itself
/// where a socket has a time limit (signal(7)).
template <class Call>
auto undisturbed(Deadline deadline, Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR && !deadline.passed()) result = call();
  return result;
}

union ControlBuffer {  // Aligned as the kernel wants it.
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

void answer(int client, const std::array<std::byte, 16>& token) {
  limit_time(client, kAnswerTime);
  const Deadline deadline = Deadline::after(kAnswerTime);
  Question question;
  const ssize_t asked =
      undisturbed(deadline, [&] { return recv(client, &question, sizeof(question), MSG_WAITALL); });
  if (!same_user(client) || asked != static_cast<ssize_t>(sizeof(question)) ||
      question.token != token)
    return;
  Entry entry;
  Answer reply;
  if (find_entry(question.id, &entry))
    reply = {1, entry.bytes, entry.offset, entry.owned ? 1U : 0U};
  iovec data{&reply, sizeof(reply)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  ControlBuffer control{};
  if (reply.found != 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &entry.fd, sizeof(int));
  }
  undisturbed(deadline, [&] { return sendmsg(client, &message, MSG_NOSIGNAL); });
  if (entry.fd >= 0) ::close(entry.fd);
}

/// The serving thread of this process, and its address.
struct Server {
  pid_t pid = 0;
  Address address;
};

Result<Server> start() {
  Server server{getpid(), {}};
  std::uint64_t name[2] = {};
  if (getrandom(name, sizeof(name), 0) != sizeof(name) ||
      getrandom(server.address.token.data(), server.address.token.size(), 0) < 0) {
    return Error{Code::kSystem, "shared_memory: no random bytes"};
  }
  std::snprintf(server.address.socket.data(), server.address.socket.size(), "tutti-%016llx%08llx",
                static_cast<unsigned long long>(name[0]),
                static_cast<unsigned long long>(name[1] & 0xffffffffU));
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t length = abstract_name(server.address, &address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, 256) != 0) {
    const int error = errno;
    if (listener >= 0) ::close(listener);
    return Error{Code::kSystem,
                 "shared_memory: listening: " + std::generic_category().message(error)};
  }
  // Detached: it sleeps in accept until the process ends.
  start_thread([listener, token = server.address.token] {
    for (;;) {
      const Socket client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      if (client.fd >= 0) {
        answer(client.fd, token);
      } else if (errno == EBADF || errno == EINVAL) {
        return;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        // Out of descriptors: who asks waits in the kernel's queue. Nothing is worth a busy loop.
        std::this_thread::sleep_for(kAcceptPause);
      }
    }
  }).detach();
  return server;
}

Error fetch_error(const std::string& what) {
  return {Code::kSystem, "shared_memory: fetching a peer's memory: " + what};
}

/// What a process says of a segment; with a descriptor, which the caller closes, if it has it.
struct Found {
  Answer reply;
  int fd = -1;
};

Result<Found> ask(const Address& address, std::uint64_t id, Deadline deadline,
                  const GiveUp& give_up) {
  const Socket client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (client.fd < 0) return fetch_error("socket: " + std::generic_category().message(errno));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline.at - std::chrono::steady_clock::now());
  limit_time(client.fd, std::clamp(left, std::chrono::milliseconds(1), kGlance));
  // `call`, again while it is only late.
  const auto patiently = [&](auto call) {
    auto result = undisturbed(deadline, call);
    while (result < 0 && errno == EAGAIN && !deadline.passed() && !(give_up && give_up()))
      result = undisturbed(deadline, call);
    return result;
  };
  sockaddr_un name;
  const socklen_t length = abstract_name(address, &name);
  const int connected =
      patiently([&] { return connect(client.fd, reinterpret_cast<sockaddr*>(&name), length); });
  if (connected != 0) {
    return fetch_error("its process does not answer: " + std::generic_category().message(errno));
  }
  if (!same_user(client.fd)) return fetch_error("its process belongs to another user");
  const Question question{address.token, id};
  const ssize_t sent =
      patiently([&] { return send(client.fd, &question, sizeof(question), MSG_NOSIGNAL); });
  if (sent != static_cast<ssize_t>(sizeof(question))) {
    return fetch_error("sending: " + std::generic_category().message(errno));
  }
  Found found;
  iovec data{&found.reply, sizeof(found.reply)};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t got =
      patiently([&] { return recvmsg(client.fd, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC); });
  if (got != static_cast<ssize_t>(sizeof(found.reply))) {
    return fetch_error("it gave no answer");
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof(int)))
    std::memcpy(&found.fd, CMSG_DATA(header), sizeof(int));
  return found;
}

}  // namespace

Result<Address> serve() {
  static std::mutex mutex;
  static Server server;
  const std::lock_guard lock(mutex);
  if (server.pid != getpid()) {  // The first time, and after a fork.
    TUTTI_TRY(server, start());
  }
  return server.address;
}

Result<Mapping> fetch(const Address& address, std::uint64_t id, Deadline deadline,
                      const GiveUp& give_up) {
  TUTTI_TRY(const Found found, ask(address, id, deadline, give_up));
  const auto& [reply, fd] = found;
  if (fd < 0) return fetch_error("it does not have that segment (freed meanwhile?)");
  struct stat file {};
  const bool owned = reply.owned != 0;
  const std::size_t page_offset = owned ? 0 : reply.offset % 4096;
  const std::size_t total = mapped_bytes(reply.bytes, page_offset, owned);
  if (fstat(fd, &file) != 0 || reply.bytes > (std::uint64_t{1} << 46) ||
      static_cast<std::uint64_t>(file.st_size) <
          reply.offset - page_offset + (owned ? total : page_offset + reply.bytes)) {
    ::close(fd);
    return fetch_error("its size is wrong");
  }
  void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    static_cast<off_t>(reply.offset - page_offset));
  if (base == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    return fetch_error("mmap: " + std::generic_category().message(error));
  }
  return Mapping(fd, static_cast<std::byte*>(base), reply.bytes, page_offset, owned);
}

Result<Descriptor> fetch_descriptor(const Address& address, std::uint64_t id, Deadline deadline) {
  TUTTI_TRY(const Found found, ask(address, id, deadline, nullptr));
  if (found.fd < 0) return fetch_error("it does not offer that memory (freed meanwhile?)");
  return Descriptor{found.fd, found.reply.bytes};
}

bool is_exported(const Address& address, std::uint64_t id, Deadline deadline,
                 const GiveUp& give_up) {
  const auto found = ask(address, id, deadline, give_up);
  if (!found) return true;
  if (found->fd >= 0) ::close(found->fd);
  return found->reply.found != 0;
}

}  // namespace tutti::segments
