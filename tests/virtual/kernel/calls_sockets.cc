// Sockets: those of the network are virtual, all others the real kernel's.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "virtual/kernel/faults.h"
#include "virtual/kernel/files.h"
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
long as_errno(long result) { return result < 0 ? fail(static_cast<int>(-result)) : result; }

sockaddr_in name_of(std::uint32_t ip, std::uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(ip);
  name.sin_port = htons(port);
  return name;
}

int give_name(std::uint32_t ip, std::uint16_t port, sockaddr* to, socklen_t* size) {
  const sockaddr_in name = name_of(ip, port);
  std::memcpy(to, &name, std::min<std::size_t>(*size, sizeof(name)));
  *size = sizeof(name);
  return 0;
}

int flags_of(int type) {
  return ((type & SOCK_NONBLOCK) != 0 ? O_NONBLOCK : 0) |
         ((type & SOCK_CLOEXEC) != 0 ? O_CLOEXEC : 0);
}

/// A Unix socket's name, with the driver's number behind an abstract one: two runs of a seed at the
/// same time make the same names.
struct UnixName {
  sockaddr_un name{};
  socklen_t size = 0;
  UnixName(const sockaddr* from, socklen_t bytes) : size(bytes) {
    std::memcpy(&name, from, std::min<std::size_t>(bytes, sizeof(name)));
    constexpr std::size_t kStart = offsetof(sockaddr_un, sun_path);
    if (!active() || name.sun_family != AF_UNIX || bytes <= kStart || name.sun_path[0] != 0) return;
    const std::size_t used = bytes - kStart;
    const int more =
        std::snprintf(name.sun_path + used, sizeof(name.sun_path) - used, ".%d", world->driver_pid);
    size = static_cast<socklen_t>(bytes + static_cast<std::size_t>(std::max(more, 0)));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

/// Does `attempt` until it need not wait.
template <class Attempt>
long blocking(int fd, int flags, short events, Attempt&& attempt) {
  for (;;) {
    const long result = attempt();
    if (result != -EAGAIN || (flags & MSG_DONTWAIT) != 0 || files::is_nonblocking(fd))
      return as_errno(result);
    (void)files::wait_for(fd, events, kNever);
  }
}

long send_parts(int fd, int socket, const iovec* parts, std::size_t count, int flags) {
  point("send");
  return blocking(fd, flags, POLLOUT, [&] {
    const long sent = net::send(socket, parts, count);
    note("sent", socket, sent);
    return sent;
  });
}

long receive_parts(int fd, int socket, const iovec* parts, std::size_t count, int flags) {
  point("recv");
  return blocking(fd, flags, POLLIN, [&] {
    const long got = net::receive(socket, parts, count, (flags & MSG_PEEK) != 0);
    note("received", socket, got);
    return got;
  });
}

}  // namespace
}  // namespace tutti::virt

using namespace tutti::virt;  // NOLINT(google-build-using-namespace): the C library's names follow.

extern "C" {

int socket(int family, int type, int protocol) noexcept {
  if (!active()) return static_cast<int>(raw_errno(SYS_socket, family, type, protocol));
  point("socket");
  if (faults::refuses("refuse socket")) return fail(EMFILE);
  if (family == AF_INET6) return fail(EAFNOSUPPORT);
  const int fd = family == AF_INET
                     ? files::place_holder(net::create(self->process), flags_of(type))
                     : static_cast<int>(raw_errno(SYS_socket, family, type, protocol));
  if (fd >= 0 && family == AF_UNIX) files::descriptor(fd) = Descriptor::kWakes;
  return fd;
}

int bind(int fd, const sockaddr* name, socklen_t size) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const UnixName own(name, size);
    return static_cast<int>(raw_errno(SYS_bind, fd, own.get(), own.size));
  }
  point("bind");
  sockaddr_in to{};
  std::memcpy(&to, name, std::min<std::size_t>(size, sizeof(to)));
  return static_cast<int>(
      as_errno(net::bind(socket, ntohl(to.sin_addr.s_addr), ntohs(to.sin_port))));
}

int listen(int fd, int backlog) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0) return static_cast<int>(raw_errno(SYS_listen, fd, backlog));
  point("listen");
  return static_cast<int>(as_errno(net::listen(socket)));
}

int accept4(int fd, sockaddr* name, socklen_t* size, int flags) {
  const int listener = files::socket_of(fd);
  if (listener < 0) {
    if (active()) point("accept");
    const int made = static_cast<int>(raw_errno(SYS_accept4, fd, name, size, flags));
    if (active() && made >= 0) files::descriptor(made) = Descriptor::kWakes;
    return made;
  }
  point("accept");
  if (faults::refuses("refuse accept")) return fail(EMFILE);
  const long made = blocking(fd, 0, POLLIN, [&] { return net::accept(listener, self->process); });
  if (made < 0) return -1;
  const Socket& socket = world->sockets[made];
  if (name != nullptr) give_name(socket.peer_ip, socket.peer_port, name, size);
  return files::place_holder(static_cast<int>(made), flags_of(flags));
}

int accept(int fd, sockaddr* name, socklen_t* size) { return accept4(fd, name, size, 0); }

int connect(int fd, const sockaddr* name, socklen_t size) {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    if (active()) point("connect");
    const UnixName own(name, size);
    const long result = raw_errno(SYS_connect, fd, own.get(), own.size);
    if (active()) real_change();
    return static_cast<int>(result);
  }
  point("connect");
  sockaddr_in to{};
  std::memcpy(&to, name, std::min<std::size_t>(size, sizeof(to)));
  return static_cast<int>(
      as_errno(net::connect(socket, ntohl(to.sin_addr.s_addr), ntohs(to.sin_port))));
}

int getsockname(int fd, sockaddr* name, socklen_t* size) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0) return static_cast<int>(raw_errno(SYS_getsockname, fd, name, size));
  const Socket& mine = world->sockets[socket];
  return give_name(mine.own_ip, mine.own_port, name, size);
}

int getpeername(int fd, sockaddr* name, socklen_t* size) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0) return static_cast<int>(raw_errno(SYS_getpeername, fd, name, size));
  const Socket& mine = world->sockets[socket];
  if (mine.state != Socket::State::kOpen) return fail(ENOTCONN);
  return give_name(mine.peer_ip, mine.peer_port, name, size);
}

int setsockopt(int fd, int level, int option, const void* value, socklen_t size) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0)
    return static_cast<int>(raw_errno(SYS_setsockopt, fd, level, option, value, size));
  if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT)
    std::memcpy(&world->sockets[socket].user_timeout_ms, value, sizeof(std::int32_t));
  return 0;
}

int getsockopt(int fd, int level, int option, void* __restrict value,
               socklen_t* __restrict size) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0)
    return static_cast<int>(raw_errno(SYS_getsockopt, fd, level, option, value, size));
  if (level == IPPROTO_TCP && option == TCP_INFO) {
    tcp_info info{};
    info.tcpi_retransmits = static_cast<std::uint8_t>(net::retransmits(socket));
    std::memcpy(value, &info, std::min<std::size_t>(*size, sizeof(info)));
    return 0;
  }
  if (level != SOL_SOCKET || option != SO_ERROR) return fail(ENOPROTOOPT);
  const int error = net::take_error(socket);
  std::memcpy(value, &error, sizeof(error));
  return 0;
}

ssize_t send(int fd, const void* data, std::size_t bytes, int flags) {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const long sent = raw_errno(SYS_sendto, fd, data, bytes, flags, nullptr, 0);
    if (active()) real_change();
    return sent;
  }
  const iovec part{const_cast<void*>(data), bytes};
  return send_parts(fd, socket, &part, 1, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const long sent = raw_errno(SYS_sendmsg, fd, message, flags);
    if (active()) real_change();
    return sent;
  }
  return send_parts(fd, socket, message->msg_iov, message->msg_iovlen, flags);
}

ssize_t recv(int fd, void* to, std::size_t bytes, int flags) {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const long got = raw_errno(SYS_recvfrom, fd, to, bytes, flags, nullptr, nullptr);
    if (active()) real_change();
    return got;
  }
  const iovec part{to, bytes};
  return receive_parts(fd, socket, &part, 1, flags);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const long got = raw_errno(SYS_recvmsg, fd, message, flags);
    if (active()) real_change();
    return got;
  }
  return receive_parts(fd, socket, message->msg_iov, message->msg_iovlen, flags);
}

int shutdown(int fd, int how) noexcept {
  const int socket = files::socket_of(fd);
  if (socket < 0) {
    const long result = raw_errno(SYS_shutdown, fd, how);
    if (active()) real_change();
    return static_cast<int>(result);
  }
  point("shutdown");
  return how == SHUT_RD ? 0 : static_cast<int>(as_errno(net::shut_down(socket)));
}

int ioctl(int fd, unsigned long what, ...) noexcept {
  va_list list;
  va_start(list, what);
  void* const argument = va_arg(list, void*);
  va_end(list);
  const int socket = files::socket_of(fd);
  if (socket < 0) return static_cast<int>(raw_errno(SYS_ioctl, fd, what, argument));
  if (what != SIOCOUTQ) return fail(EINVAL);
  const int bytes = net::unacknowledged(socket);
  std::memcpy(argument, &bytes, sizeof(bytes));
  return 0;
}

int getifaddrs(ifaddrs** list) noexcept {
  if (!active()) return TUTTI_REAL(getifaddrs)(list);
  struct One {
    ifaddrs entry;
    sockaddr_in address, mask;
    char name[16];
  };
  const int rails = world->parameters.rails;
  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): as the C library's.
  auto* const all =
      static_cast<One*>(std::calloc(static_cast<std::size_t>(rails) + 1, sizeof(One)));
  if (all == nullptr) return fail(ENOMEM);
  for (int i = 0; i <= rails; ++i) {
    One& one = all[i];
    const bool loopback = i == 0;
    std::snprintf(one.name, sizeof(one.name), loopback ? "lo" : "eth%d", i - 1);
    one.entry.ifa_next = i < rails ? &all[i + 1].entry : nullptr;
    one.entry.ifa_name = one.name;
    one.entry.ifa_flags = IFF_UP | IFF_RUNNING | (loopback ? IFF_LOOPBACK : IFF_BROADCAST);
    one.address =
        name_of(loopback ? net::kLoopback : net::address_of(own_process().host, i - 1), 0);
    one.mask = name_of(loopback ? 0xff000000 : 0xffffff00, 0);
    one.entry.ifa_addr = reinterpret_cast<sockaddr*>(&one.address);
    one.entry.ifa_netmask = reinterpret_cast<sockaddr*>(&one.mask);
  }
  *list = &all->entry;
  return 0;
}

void freeifaddrs(ifaddrs* list) noexcept {
  if (!active()) return TUTTI_REAL(freeifaddrs)(list);
  std::free(list);  // NOLINT(cppcoreguidelines-no-malloc): as the C library's.
}

}  // extern "C"
