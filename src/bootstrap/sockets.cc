#include "bootstrap/sockets.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "base/log.h"
#include "base/threads.h"
#include "bootstrap/limits.h"

namespace tutti::bootstrap {
namespace {

constexpr int kBacklog = 4096;  // The kernel cuts it to net.core.somaxconn.

/// `error_number` says why it did not work.
Fd listen_on(const SocketAddress& address, int* error_number) {
  const int family = address.family();
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1, off = 0;
  // So that a port can be taken again while connections of the last run are in TIME_WAIT.
  if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // One socket for both families, where it stands for every interface.
  if (socket && family == AF_INET6)
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (!socket || ::bind(socket.get(), address.get(), address.length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    *error_number = errno;
    return Fd();
  }
  return socket;
}

int milliseconds_left(Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline.at - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1'000'000));
}

Result<std::vector<SocketAddress>> ask_resolver(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  if (failure != 0) {
    return Error{Code::kSystem,
                 "rendezvous: host '" + host + "' is unknown: " + gai_strerror(failure)};
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next)
    addresses.push_back(SocketAddress::of(one->ai_addr));
  return addresses;
}

/// Listens at those of these addresses that this host has; with `one`, only at the first of them.
/// kUnsupported: it has none of them.
Result<Listening> listen_on(const std::vector<SocketAddress>& addresses, bool one) {
  Listening listening;
  std::string reasons;
  bool foreign = true;
  for (const SocketAddress& address : addresses) {
    const bool twice = std::any_of(
        listening.sockets.begin(), listening.sockets.end(),
        [&](const Fd& other) { return own_end(other.get()).ip_text() == address.ip_text(); });
    if (twice) continue;
    int error_number = 0;
    Fd socket = listen_on(address, &error_number);
    if (socket) {
      listening.port = own_end(socket.get()).port();
      listening.sockets.push_back(std::move(socket));
      if (one) break;  // The "any" address serves both families, and a free port is a single port.
      continue;
    }
    const Error error = system_error(address.text(), error_number);
    // It is fine if the machine has no IPv6, but not if another process has the port.
    if (error_number == EADDRINUSE || error_number == EACCES)
      return Error{Code::kSystem, "rendezvous: can't listen at " + error.what};
    foreign = foreign && error_number == EADDRNOTAVAIL;
    reasons += (reasons.empty() ? "" : "; ") + error.what;
  }
  if (!listening.sockets.empty()) return listening;
  return Error{foreign ? Code::kUnsupported : Code::kSystem,
               "rendezvous: can't listen at " + reasons};
}

/// Whether the name is the host's own name, which on the host itself stands for a loopback address
/// (Debian's 127.0.1.1). On other hosts it stands for another address.
bool is_host_name_at_loopback(const std::string& host, const std::vector<SocketAddress>& named) {
  const bool loopback = std::all_of(named.begin(), named.end(),
                                    [](const auto& address) { return address.is_loopback(); });
  return loopback && host.find("localhost") == std::string::npos && host != "ip6-loopback" &&
         !ask_resolver(host, 0, AI_NUMERICHOST);
}

Error gone() {
  return {Code::kPeerFailed, "rendezvous: the store closed the connection: its process has ended"};
}

}  // namespace

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Deadline deadline) {
  // An address needs no resolver and therefore no thread.
  auto numeric = ask_resolver(host, port, AI_NUMERICHOST);
  if (numeric) return numeric;
  struct Question {
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Result<std::vector<SocketAddress>>> answer;
  };
  const auto question = std::make_shared<Question>();
  TUTTI_TRY(auto asking,
            start_thread("rendezvous: a thread that looks up a host", [question, host, port] {
              auto answer = ask_resolver(host, port, 0);
              const std::lock_guard lock(question->mutex);
              question->answer.emplace(std::move(answer));
              question->answered.notify_one();
            }));
  asking.detach();
  std::unique_lock lock(question->mutex);
  if (!question->answered.wait_until(lock, deadline.at,
                                     [&] { return question->answer.has_value(); })) {
    return Error{Code::kTimeout,
                 "rendezvous: the system's resolver did not say in time where host '" + host +
                     "' is; name it by its address, or mend the name service"};
  }
  return *std::move(question->answer);
}

std::vector<SocketAddress> own_addresses() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(found, freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      if ((one->ifa_flags & IFF_UP) == 0 || is_virtual_bridge(one->ifa_name)) continue;
      const SocketAddress address = SocketAddress::of(one->ifa_addr);
      // A link-local address means nothing without the interface it is on.
      if (family == AF_INET6 && address.is_link_local()) continue;
      if (!address.is_loopback()) addresses.push_back(address);
    }
  }
  return addresses;
}

Result<Listening> listen_at(const std::string& host, int port, Deadline deadline) {
  const auto number = static_cast<std::uint16_t>(port);
  const std::vector<SocketAddress> everywhere{ipv6_address(in6addr_any, number),
                                              ipv4_address({INADDR_ANY}, number)};
  if (host.empty()) return listen_on(everywhere, true);
  TUTTI_TRY(auto named, resolve(host, port, deadline));
  if (is_host_name_at_loopback(host, named)) {
    for (SocketAddress& own : own_addresses()) {
      own.set_port(number);
      named.push_back(own);
    }
  }
  auto listening = listen_on(named, port == 0);
  if (listening || listening.error().code != Code::kUnsupported) return listening;
  log::warn(
      log::Part::kJoin,
      "rendezvous: host '{}' is {}, which is no address of this host (is it translated?); the "
      "store "
      "listens at all of its addresses",
      host, named.front().ip_text());
  return listen_on(everywhere, true);
}

Result<Listening> listen_at(std::span<const SocketAddress> addresses) {
  constexpr int kTries = 16;  // A port that is free at one address may be taken at another.
  std::string taken;
  for (int i = 0; i < kTries; ++i) {
    Listening listening;
    int error_number = 0;
    for (SocketAddress address : addresses) {
      address.set_port(static_cast<std::uint16_t>(listening.port));
      Fd socket = listen_on(address, &error_number);
      if (!socket) {
        taken = system_error(address.text(), error_number).what;
        break;
      }
      listening.port = own_end(socket.get()).port();
      listening.sockets.push_back(std::move(socket));
    }
    if (listening.sockets.size() == addresses.size()) return listening;
    if (error_number != EADDRINUSE) break;
  }
  return Error{Code::kSystem, "rendezvous: can't listen at " + taken};
}

Status wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    pollfd polled{socket, events, 0};
    const int ready = ::poll(&polled, 1, milliseconds_left(deadline));
    if (ready > 0) return ok();
    if (ready < 0 && errno != EINTR) return system_error("rendezvous: poll", errno);
    if (deadline.passed()) return Error{Code::kTimeout, "rendezvous: no answer in time"};
  }
}

namespace {

Error not_connected(const SocketAddress& address, int reason) {
  Error error = system_error("connecting to " + address.text(), reason);
  if (reason == ECONNREFUSED) error.code = Code::kPeerFailed;
  return error;
}

}  // namespace

Result<Fd> connect_to(const SocketAddress& address, Deadline deadline) {
  Fd socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("rendezvous: socket", errno);
  if (::connect(socket.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) return not_connected(address, errno);
    if (!wait_for(socket.get(), POLLOUT, deadline)) {
      return Error{Code::kTimeout, "connecting to " + address.text() + ": no answer"};
    }
    int failure = 0;
    socklen_t size = sizeof(failure);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return not_connected(address, failure);
  }
  set_stream_options(socket.get());
  return socket;
}

Status send_all(int socket, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      TUTTI_RETURN_IF_ERROR(wait_for(socket, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return gone();
    }
  }
  return ok();
}

Result<std::size_t> receive_some(int socket, std::span<std::byte> into, Deadline deadline) {
  for (;;) {
    const ssize_t got = ::recv(socket, into.data(), into.size(), 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return gone();
    if (errno == EAGAIN) {
      TUTTI_RETURN_IF_ERROR(wait_for(socket, POLLIN, deadline));
    } else if (errno != EINTR) {
      return gone();
    }
  }
}

Status receive_all(int socket, std::span<std::byte> into, Deadline deadline) {
  while (!into.empty()) {
    TUTTI_TRY(const std::size_t got, receive_some(socket, into, deadline));
    into = into.subspan(got);
  }
  return ok();
}

void set_stream_options(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

}  // namespace tutti::bootstrap
