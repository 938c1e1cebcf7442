// The server's side of the protocol: from bytes to requests, from answers to bytes.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/log.h"
#include "bootstrap/limits.h"
#include "bootstrap/tcp_connection.h"

namespace tutti::bootstrap {
namespace {

constexpr std::size_t kMostProcessBytes = 128;  // Of its name, in messages.

}  // namespace

Status watch(int epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll, operation, descriptor, &event) != 0)
    return system_error("rendezvous: epoll", errno);
  return ok();
}

bool TcpServer::read(Connection& connection) {
  std::array<std::byte, 65536> buffer;
  const ssize_t got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  const auto bytes = std::span<const std::byte>(buffer).first(static_cast<std::size_t>(got));
  // A client speaks in turn: while it waits for an answer it has nothing to say.
  if (connection.answering() || !connection.key.empty()) {
    log::info("rendezvous: closed {}: it spoke out of turn", connection.peer);
    return false;
  }
  if (connection.greeted) {
    connection.reader.append(bytes);
    return read_requests(connection);
  }
  const std::size_t missing = wire::kHelloBytes - connection.hello.size();
  const auto part = bytes.first(std::min(missing, bytes.size()));
  connection.hello.insert(connection.hello.end(), part.begin(), part.end());
  connection.reader.append(bytes.subspan(part.size()));
  return connection.hello.size() < wire::kHelloBytes || read_hello(connection);
}

bool TcpServer::read_hello(Connection& connection) {
  const auto hello = wire::parse_hello(
      std::span<const std::byte, wire::kHelloBytes>(connection.hello.data(), wire::kHelloBytes));
  if (!hello) {
    log::info("rendezvous: closed {}: it is no client of Tutti", connection.peer);
    return false;
  }
  const Bytes mine = wire::encode(wire::Hello{wire::kVersion, identity_});
  // Twenty bytes always fit the buffer of a new socket.
  if (::send(connection.socket.get(), mine.data(), mine.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(mine.size())) {
    return false;
  }
  if (hello->version != wire::kVersion) {
    log::warn(
        "rendezvous: {} speaks version {} of the protocol, this rank version {}: all ranks need "
        "the same Tutti",
        connection.peer, hello->version, wire::kVersion);
    return false;
  }
  connection.greeted = true;
  return read_requests(connection);
}

bool TcpServer::read_requests(Connection& connection) {
  while (!connection.answering() && connection.key.empty()) {
    auto frame = connection.reader.next();
    if (!frame) {
      log::info("rendezvous: closed {}: {}", connection.peer, frame.error().what);
      return false;
    }
    if (!frame->has_value()) return true;
    if (!handle(connection, **frame)) return false;
  }
  return true;
}

bool TcpServer::handle(Connection& connection, std::span<const std::byte> frame) {
  const auto message = wire::parse(frame);
  if (!message) {
    log::info("rendezvous: closed {}: {}", connection.peer, message.error().what);
    return false;
  }
  if (!connection.job) {
    return message->kind == wire::Kind::kJoin && handle_join(connection, *message);
  }
  if (message->kind == wire::Kind::kGet || message->kind == wire::Kind::kPut)
    note_asked(connection, true);
  switch (message->kind) {
    case wire::Kind::kPut: {
      const Status stored = connection.job->store->put(message->key, message->value);
      wire::Message answer{.kind = stored ? wire::Kind::kDone : wire::Kind::kRefused};
      if (!stored) answer.text = stored.error().what;
      return reply(connection, answer);
    }
    case wire::Kind::kGet: return handle_get(connection, *message);
    case wire::Kind::kEnter: return handle_enter(connection, *message);
    case wire::Kind::kLeave: note_left(connection); return true;
    case wire::Kind::kFail:
      connection.job->store->fail(message->error);
      return reply(connection, {.kind = wire::Kind::kDone});
    default:
      log::info("rendezvous: closed {}: an answer where a request was due", connection.peer);
      return false;
  }
}

bool TcpServer::handle_join(Connection& connection, const wire::Message& message) {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_) {
      if (wire::same_secret(job->secret, message.secret)) connection.job = job;
    }
    if (connection.job) ++clients_;
  }
  if (!connection.job) {
    connection.last_answer = true;
    return reply(connection, {.kind = wire::Kind::kRefused, .text = "it serves another job"});
  }
  clear_timer(connection);
  connection.reader.allow(wire::kMostFrameBytes);
  return reply(connection, {.kind = wire::Kind::kDone});
}

bool TcpServer::handle_get(Connection& connection, const wire::Message& message) {
  const auto value = connection.job->store->find(message.key);
  if (!value) return reply(connection, {.kind = wire::Kind::kFailed, .error = value.error()});
  if (*value) return reply(connection, {.kind = wire::Kind::kValue, .value = **value}, *value);
  if (message.wait_ms == 0) return reply(connection, {.kind = wire::Kind::kAbsent});
  // A put that comes between the look and here is in changes_, which this thread has yet to see.
  connection.key = message.key;
  connection.job->waiting[connection.key].push_back(connection.id);
  set_timer(connection,
            std::chrono::steady_clock::now() + std::chrono::milliseconds(message.wait_ms));
  return true;
}

bool TcpServer::handle_enter(Connection& connection, const wire::Message& message) {
  if (!std::exchange(connection.joining, message.rank))
    connection.job->owed.fetch_add(1, std::memory_order_relaxed);
  connection.process = message.text.substr(0, kMostProcessBytes);
  // It comes into messages, which are one line each.
  std::replace_if(
      connection.process.begin(), connection.process.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return true;
}

void TcpServer::note_left(Connection& connection) {
  if (std::exchange(connection.joining, std::nullopt))
    connection.job->owed.fetch_sub(1, std::memory_order_relaxed);
}

void TcpServer::note_asked(Connection& connection, bool asked) {
  if (!connection.job || std::exchange(connection.asked, asked) == asked) return;
  connection.job->owed.fetch_add(asked ? 1 : -1, std::memory_order_relaxed);
}

bool TcpServer::reply(Connection& connection, const wire::Message& message, SharedBytes body) {
  connection.head = wire::encode(message);
  connection.body = std::move(body);
  connection.sent = 0;
  return flush(connection);
}

bool TcpServer::flush(Connection& connection) {
  const std::size_t head = connection.head.size();
  const std::size_t total = head + (connection.body ? connection.body->size() : 0);
  while (connection.sent < total) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    if (connection.sent < head)
      parts[count++] = {connection.head.data() + connection.sent, head - connection.sent};
    if (total > head) {
      const std::size_t from = connection.sent > head ? connection.sent - head : 0;
      // sendmsg takes non-const memory, and only reads it.
      parts[count++] = {const_cast<std::byte*>(connection.body->data()) + from,
                        total - head - from};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno != EAGAIN) return false;
      if (std::exchange(connection.blocked, true)) return true;
      return static_cast<bool>(watch(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(),
                                     EPOLLIN | EPOLLOUT | EPOLLRDHUP, connection.id));
    }
    connection.sent += static_cast<std::size_t>(sent);
  }
  connection.head.clear();
  connection.body = nullptr;
  note_asked(connection, false);
  if (connection.last_answer) return false;
  if (!std::exchange(connection.blocked, false)) return true;
  return static_cast<bool>(watch(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(),
                                 EPOLLIN | EPOLLRDHUP, connection.id));
}

}  // namespace tutti::bootstrap
