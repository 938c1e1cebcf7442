// Hands memfds to peers of the same user that know the token, and fetches theirs.
#include "transport/local/segment_server.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "base/fork.h"
#include "base/mapped_memory.h"
#include "base/threads.h"
#include "transport/local/segments.h"

namespace tutti::segments {
namespace {

constexpr std::chrono::seconds kAnswerTime{1};          // That one peer may take.
constexpr std::chrono::milliseconds kAcceptPause{20};   // Between attempts that can't succeed.
constexpr std::chrono::milliseconds kBetweenLooks{20};  // A waiting process asks whether to go on.
constexpr std::size_t kMostClients = 64;                // This user's, at the same time.
constexpr int kMostAccepted = 256;                      // Before clients get their turn again.
constexpr int kBacklog = 4096;

struct Question {
  std::array<std::byte, 16> token{};
  std::uint64_t id = 0;
};
struct Answer {
  std::uint64_t found = 0, bytes = 0, offset = 0, owned = 0;
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

std::string reason(int error) { return std::generic_category().message(error); }

union ControlBuffer {  // Aligned as the kernel wants it.
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

void answer(int client, const Question& question) {
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
  // Nothing was sent to the client before, so there is room.
  while (sendmsg(client, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
  }
  if (entry.fd >= 0) ::close(entry.fd);
}

/// A connected process of this user, which may ask one question.
struct Client {
  int fd = -1;
  std::chrono::steady_clock::time_point end;
  std::size_t got = 0;
  Question question;
};

/// The serving thread of this process, its sockets and its address.
struct Server {
  pid_t pid = 0;
  Address address;
  int listener = -1;
  std::array<Client, kMostClients> clients;  // Only the thread uses more of them than `fd`.
};
constinit Server server;
constinit std::mutex serve_mutex;
// Guards the descriptors of sockets: during a fork, none is being opened or closed.
constinit std::mutex sockets_mutex;

/// Closes the parent's sockets in a child: peers must see them close when the parent ends.
void close_inherited() {
  for (Client& client : server.clients) {
    if (client.fd >= 0) ::close(client.fd);
    client = {};
  }
  if (server.listener >= 0) ::close(server.listener);
  server.listener = -1;
}
const HeldAcrossFork serve_held(ForkOrder::kServe, []() -> std::mutex& { return serve_mutex; });
const HeldAcrossFork sockets_held(
    ForkOrder::kServerSockets, []() -> std::mutex& { return sockets_mutex; }, close_inherited);

void drop(Client& client) {
  const std::lock_guard lock(sockets_mutex);
  ::close(client.fd);
  client = {};
}

/// Takes what the client has sent, and answers once its question is complete.
void look_after(Client& client) {
  auto* to = reinterpret_cast<std::byte*>(&client.question) + client.got;
  const ssize_t got = recv(client.fd, to, sizeof(Question) - client.got, MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return drop(client);
  client.got += static_cast<std::size_t>(got);
  if (client.got < sizeof(Question)) return;
  if (client.question.token == server.address.token) answer(client.fd, client.question);
  drop(client);
}

enum class Accepted { kOne, kNone, kRefused, kNever };

/// Accepts the next connection, into `place` if it comes from this user. It closes others before a
/// byte is read.
Accepted accept_next(Client& place) {
  const std::lock_guard lock(sockets_mutex);
  const int fd = accept4(server.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && errno == EAGAIN) return Accepted::kNone;
  if (fd < 0 && (errno == EBADF || errno == EINVAL)) return Accepted::kNever;
  if (fd < 0) return errno == EINTR || errno == ECONNABORTED ? Accepted::kOne : Accepted::kRefused;
  if (!same_user(fd)) {
    ::close(fd);
    return Accepted::kOne;
  }
  place.end = std::chrono::steady_clock::now() + kAnswerTime;
  place.fd = fd;
  return Accepted::kOne;
}

/// Sockets that the thread waits for. Only those in use: poll takes no more entries than the
/// process may have descriptors (RLIMIT_NOFILE), which may be fewer than kMostClients.
struct Waits {
  std::array<pollfd, kMostClients + 1> set{};
  std::array<Client*, kMostClients + 1> of{};  // null: the listener.
  std::size_t size = 0;

  void add(int fd, Client* client) {
    set[size] = {fd, POLLIN, 0};
    of[size++] = client;
  }
  /// Until one of them has something, or `end`.
  void wait(std::chrono::steady_clock::time_point now, std::chrono::steady_clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now).count();
    const bool open_ended = end == std::chrono::steady_clock::time_point::max();
    if (::poll(set.data(), size, open_ended ? -1 : static_cast<int>(left)) >= 0 || errno == EINTR)
      return;
    // The limit is below what is open already, or the kernel has no memory. Nobody can be served
    // then; a busy loop would not help.
    std::this_thread::sleep_for(kAcceptPause);
  }
};

/// Serves all clients at the same time, until the process ends.
void serve_clients() {
  auto accept_from = std::chrono::steady_clock::time_point::min();  // Accepts nothing before this.
  for (;;) {
    Waits waits;
    Client* place = nullptr;
    auto now = std::chrono::steady_clock::now();
    auto end = std::chrono::steady_clock::time_point::max();
    for (Client& client : server.clients) {
      if (client.fd < 0) {
        place = &client;
        continue;
      }
      waits.add(client.fd, &client);
      end = std::min(end, client.end);
    }
    const bool accepts = place != nullptr && now >= accept_from;
    if (accepts) waits.add(server.listener, nullptr);
    if (place != nullptr && !accepts) end = std::min(end, accept_from);
    waits.wait(now, end);
    now = std::chrono::steady_clock::now();
    bool asked = false;  // To accept.
    for (std::size_t i = 0; i < waits.size; ++i) {
      const bool ready = waits.set[i].revents != 0;
      if (Client* const client = waits.of[i]; client == nullptr) {
        asked = ready;
      } else {
        if (ready) look_after(*client);
        if (client->fd >= 0 && now >= client->end) drop(*client);
      }
    }
    if (!asked) continue;
    Accepted accepted = Accepted::kOne;
    for (int i = 0; i < kMostAccepted && accepted == Accepted::kOne && place->fd < 0; ++i)
      accepted = accept_next(*place);
    if (accepted == Accepted::kNever) return;
    // No descriptor is left. Clients wait in the kernel's queue; a busy loop would not help.
    if (accepted == Accepted::kRefused) accept_from = now + kAcceptPause;
  }
}

/// serve_mutex is held. `server` belongs to this process only once all of this has worked.
Status start() {
  Address made;
  std::uint64_t name[2] = {};
  if (getrandom(name, sizeof(name), 0) != sizeof(name) ||
      getrandom(made.token.data(), made.token.size(), 0) !=
          static_cast<ssize_t>(made.token.size())) {
    return Error{Code::kSystem, "shared_memory: no random bytes: " + reason(errno)};
  }
  std::snprintf(made.socket.data(), made.socket.size(), "tutti-%016llx%08llx",
                static_cast<unsigned long long>(name[0]),
                static_cast<unsigned long long>(name[1] & 0xffffffffU));
  sockaddr_un address;
  const socklen_t length = abstract_name(made, &address);
  {
    const std::lock_guard lock(sockets_mutex);
    if (server.listener >= 0) ::close(server.listener);  // An earlier attempt failed half way.
    server.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server.listener < 0 ||
        bind(server.listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(server.listener, kBacklog) != 0)
      return Error{Code::kSystem, "shared_memory: listening: " + reason(errno)};
  }
  server.address = made;
  TUTTI_TRY(auto thread, start_thread("shared_memory: the thread that hands out memory",
                                      [] { serve_clients(); }));
  thread.detach();  // It sleeps in poll until the process ends.
  server.pid = getpid();
  return ok();
}

/// A process's answer about a segment; with a descriptor if the process has the segment.
struct Found {
  Answer reply;
  Fd fd;
};

/// Asks one process for one segment.
class Asking {
 public:
  Asking(const Owner& owner, std::uint64_t id, Deadline deadline)
      : owner_(owner), id_(id), deadline_(deadline) {}

  Result<Found> ask() {
    // If a connection is closed without an answer, the process may just have ended. Then the second
    // attempt is refused.
    for (int attempt = 1;; ++attempt) {
      TUTTI_TRY(auto found, ask_once());
      if (found) return *std::move(found);
      if (attempt == 2) return error(Code::kSystem, "its process does not answer this one");
    }
  }

  /// "shared_memory: fetching rank 2's memory: ...".
  Error error(Code code, const std::string& what) const {
    const std::string whose =
        owner_.rank < 0 ? "a peer's" : "rank " + std::to_string(owner_.rank) + "'s";
    return {code, "shared_memory: fetching " + whose + " memory: " + what, Rank{},
            Rank{owner_.rank}};
  }

  /// The same for what the system refuses this process: the owner is not to blame for it.
  Error own_error(const std::string& what) const {
    Error found = error(Code::kSystem, what);
    found.peer = Rank{};
    return found;
  }

 private:
  /// Ok if the caller has to go on waiting.
  Status waits() const {
    if (owner_.give_up && owner_.give_up())
      return error(Code::kPeerFailed, "given up, as that rank or the communicator has ended");
    if (deadline_.passed())
      return error(Code::kTimeout, "its process has not answered in time; is it stopped?");
    return ok();
  }

  Status connect_to(int fd) const {
    sockaddr_un name;
    const socklen_t length = abstract_name(owner_.address, &name);
    while (::connect(fd, reinterpret_cast<sockaddr*>(&name), length) != 0) {
      if (errno == ECONNREFUSED || errno == ECONNRESET)
        return error(Code::kPeerFailed, "its process has ended");
      if (errno != EAGAIN && errno != EINTR)
        return error(Code::kSystem, "its process does not answer: " + reason(errno));
      TUTTI_RETURN_IF_ERROR(waits());  // EAGAIN: many are asking it at once.
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (same_user(fd)) return ok();
    return error(Code::kSystem, "its process belongs to another user");
  }

  /// Empty: the process has closed the connection.
  Result<std::optional<Found>> ask_once() const {
    const Fd client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!client) return own_error("socket: " + reason(errno));
    TUTTI_RETURN_IF_ERROR(connect_to(client.get()));
    const Question question{owner_.address.token, id_};
    // The question is the first thing that is sent, so there is room.
    if (send(client.get(), &question, sizeof(question), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(sizeof(question)))
      return std::optional<Found>();
    Found found;
    iovec data{&found.reply, sizeof(found.reply)};
    ControlBuffer control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    for (;;) {
      pollfd source{client.get(), POLLIN, 0};
      (void)::poll(&source, 1, static_cast<int>(kBetweenLooks.count()));
      // An answer arrives whole or not at all.
      const ssize_t got = recvmsg(client.get(), &message, MSG_CMSG_CLOEXEC);
      if (got == static_cast<ssize_t>(sizeof(found.reply))) break;
      if (got >= 0 || (errno != EAGAIN && errno != EINTR)) return std::optional<Found>();
      TUTTI_RETURN_IF_ERROR(waits());
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof(descriptor));
      found.fd.reset(descriptor);
    }
    return std::optional(std::move(found));
  }

  const Owner& owner_;
  std::uint64_t id_;
  Deadline deadline_;
};

}  // namespace

Result<Address> serve() {
  const std::lock_guard lock(serve_mutex);
  if (server.pid != getpid()) {  // The first time, and after a fork.
    TUTTI_RETURN_IF_ERROR(start());
  }
  return server.address;
}

Result<Mapping> fetch(const Owner& owner, std::uint64_t id, Deadline deadline) {
  Asking asking(owner, id, deadline);
  TUTTI_TRY(Found found, asking.ask());
  const Answer& reply = found.reply;
  if (!found.fd)
    return asking.error(Code::kSystem, "it does not have that segment (freed meanwhile?)");
  struct stat file {};
  const bool owned = reply.owned != 0;
  const std::size_t page_offset = owned ? 0 : reply.offset % 4096;
  const std::size_t total = mapped_bytes(reply.bytes, page_offset, owned);
  if (fstat(found.fd.get(), &file) != 0 || reply.bytes > (std::uint64_t{1} << 46) ||
      static_cast<std::uint64_t>(file.st_size) <
          reply.offset - page_offset + (owned ? total : page_offset + reply.bytes))
    return asking.error(Code::kSystem, "its size is wrong");
  MappedMemory memory = map_memory(total, MAP_SHARED, found.fd.get(), reply.offset - page_offset);
  if (memory == nullptr) return asking.own_error("mmap: " + reason(errno));
  return Mapping(std::move(found.fd), memory.release(), reply.bytes, page_offset, owned);
}

Result<Descriptor> fetch_descriptor(const Owner& owner, std::uint64_t id, Deadline deadline) {
  Asking asking(owner, id, deadline);
  TUTTI_TRY(Found found, asking.ask());
  if (!found.fd)
    return asking.error(Code::kSystem, "it does not offer that memory (freed meanwhile?)");
  return Descriptor{found.fd.release(), found.reply.bytes};
}

bool is_exported(const Owner& owner, std::uint64_t id, Deadline deadline) {
  const auto found = Asking(owner, id, deadline).ask();
  return !found || found->reply.found != 0;
}

}  // namespace tutti::segments
