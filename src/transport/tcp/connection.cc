#include "transport/tcp/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>

namespace tutti::tcp {
namespace {

void set(int socket, int level, int option, int value) {
  // A system without these options still keeps the deadlines of calls.
  setsockopt(socket, level, option, &value, sizeof(value));
}

/// Takes a socket off congestion control that paces.
void send_at_once(int socket) {
  std::array<char, 17> name{};  // 16 (TCP_CA_NAME_MAX), and an end.
  socklen_t size = name.size() - 1;
  if (getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0 ||
      !std::string_view(name.data()).starts_with("bbr"))
    return;
  // Every kernel has it and lets everybody take it. A failure leaves what there was.
  constexpr std::string_view kWithoutPacing = "reno";
  setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, kWithoutPacing.data(), kWithoutPacing.size());
}

Error failure(const Connection& connection, const char* operation, const std::string& what) {
  return {Code::kPeerFailed, fmt::format("tcp: {}: {} while {}", connection.where, what, operation),
          Rank{}, Rank{connection.peer}};
}

}  // namespace

void set_options(int socket, std::chrono::milliseconds silence,
                 std::chrono::milliseconds host_timeout) {
  const int ms = static_cast<int>(std::clamp<std::int64_t>(silence.count(), 1000, 1'000'000'000));
  constexpr int kProbes = 3;
  send_at_once(socket);
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Half of the time silent, the other half asking. Seconds; Linux takes up to 32767.
  const auto least = std::min(silence, host_timeout).count();
  const int seconds = static_cast<int>(std::clamp<std::int64_t>(least / 1000, 1, 32767));
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / (2 * kProbes)));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

Error broken(const Connection& connection, const char* operation, int error_number) {
  switch (error_number) {
    case ECONNRESET:
    case EPIPE:
      return failure(connection, operation, "the connection was reset: its process has ended");
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
      return failure(connection, operation,
                     fmt::format("no answer for {:g} s ({}): its host or the network between is "
                                 "down, or it does not read",
                                 connection.silence_ms / 1000.0,
                                 std::generic_category().message(error_number)));
    default: return failure(connection, operation, std::generic_category().message(error_number));
  }
}

Error vanished(const Connection& connection) {
  return failure(connection, "waiting for its host",
                 fmt::format("no answer for {:g} s (a sixth of TUTTI_TIMEOUT_MS, within 10 s and "
                             "60 s): its host or the network between is down",
                             connection.host_timeout_ms / 1000.0));
}

Error closed(const Connection& connection, const char* operation) {
  return failure(connection, operation, "the peer closed the connection: its process has ended");
}

}  // namespace tutti::tcp
