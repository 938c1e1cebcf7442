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

constexpr std::size_t kMostProcessBytes = 128;  // The longest name of a process, in messages.

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
    log::info(log::Part::kJoin, "rendezvous: closed {}: it spoke out of turn", connection.peer);
    return false;
  }
  if (!connection.job) return read_handshake(connection, bytes);
  Bytes opened;
  connection.opener->append(bytes);
  if (auto genuine = connection.opener->open_all(opened); !genuine) {
    log::info(log::Part::kJoin, "rendezvous: closed {}: {}", connection.peer, genuine.error().what);
    return false;
  }
  connection.reader.append(opened);
  return read_requests(connection);
}

/// Bytes of a client that has not proved itself yet.
bool TcpServer::read_handshake(Connection& connection, std::span<const std::byte> bytes) {
  if (!connection.handshake) {
    const auto part =
        bytes.first(std::min(tcp::kHelloBytes - connection.hello.size(), bytes.size()));
    connection.hello.insert(connection.hello.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (connection.hello.size() < tcp::kHelloBytes) return true;
    if (!read_hello(connection)) return false;
  }
  tcp::Handshake& handshake = *connection.handshake;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(handshake.wanted(), bytes.size()));
    if (part.empty()) {
      log::info(log::Part::kJoin, "rendezvous: closed {}: it spoke out of turn", connection.peer);
      return false;
    }
    bytes = bytes.subspan(part.size());
    if (!shake(connection, part)) return false;
    if (handshake.proven() && !(bytes.empty() && let_in(connection))) return false;
  }
  return true;
}

/// The first message, which names the job.
bool TcpServer::read_hello(Connection& connection) {
  const std::span<const std::byte, tcp::kHelloBytes> bytes(connection.hello.data(),
                                                           tcp::kHelloBytes);
  const auto hello = tcp::parse_hello(bytes, kStoreProtocol);
  Secret secret{};  // Fits no job: such a client learns no more than our version.
  if (hello) {
    const std::lock_guard lock(mutex_);
    for (const auto& job : jobs_) {
      if (job->number == hello->job) connection.sought = job;
    }
  }
  const bool known = hello && (connection.sought || hello->version != kStoreProtocol.version);
  if (!known) {
    log::info(log::Part::kJoin, "rendezvous: closed {}: {}", connection.peer,
              hello ? "it belongs to another job" : "it is no client of Tutti");
    return false;
  }
  if (connection.sought) secret = connection.sought->secret;
  auto handshake = tcp::Handshake::acceptor(secret, kStoreEnd, kStoreProtocol);
  if (!handshake) return false;
  connection.handshake.emplace(*std::move(handshake));
  return shake(connection, bytes);
}

/// One step of the handshake.
bool TcpServer::shake(Connection& connection, std::span<const std::byte> bytes) {
  tcp::Handshake& handshake = *connection.handshake;
  const Status taken = handshake.take(bytes);
  // A client of another version is closed, but learns our version first. So few bytes always fit
  // the buffer of a new socket.
  const auto answer = handshake.to_send();
  const bool sent = answer.empty() || ::send(connection.socket.get(), answer.data(), answer.size(),
                                             MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size());
  if (!taken) {
    const auto level =
        taken.error().code == Code::kMismatch ? log::Level::kWarn : log::Level::kInfo;
    if (log::enabled(log::Part::kJoin, level)) {
      log::write(log::Part::kJoin, level,
                 fmt::format("rendezvous: closed {}: {}", connection.peer, taken.error().what));
    }
    return false;
  }
  handshake.sent(answer.size());
  return sent;
}

/// Lets a client in that has proved that it knows the secret.
bool TcpServer::let_in(Connection& connection) {
  const std::shared_ptr<Job> job = connection.sought;
  const int client = connection.handshake->hello().from;
  {
    const std::lock_guard lock(mutex_);
    // A rank that has learnt why the job failed looks for the next job with that secret.
    if (job->verdict_until && client != kAnyClient && job->clients.contains(client)) return false;
    connection.job = job;
    ++clients_;
  }
  job->owed.fetch_add(1, std::memory_order_relaxed);  // Until its first request has come.
  connection.silent = true;
  --unauthenticated_;
  job->clients.insert(client);
  connection.handshake->welcome();
  if (!shake(connection, {})) return false;
  const SessionKeys keys = SessionKeys::of(*connection.handshake);
  connection.opener.emplace(keys.to_store);
  connection.sealer.emplace(keys.to_client);
  connection.handshake.reset();
  clear_timer(connection);
  return true;
}

bool TcpServer::read_requests(Connection& connection) {
  while (!connection.answering() && connection.key.empty()) {
    auto frame = connection.reader.next();
    if (!frame) {
      log::info(log::Part::kJoin, "rendezvous: closed {}: {}", connection.peer, frame.error().what);
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
    log::info(log::Part::kJoin, "rendezvous: closed {}: {}", connection.peer, message.error().what);
    return false;
  }
  if (message->kind == wire::Kind::kGet || message->kind == wire::Kind::kPut)
    note_asked(connection, true);
  const bool alive = serve_request(connection, *message);
  note_spoken(connection);
  return alive;
}

bool TcpServer::serve_request(Connection& connection, const wire::Message& message) {
  switch (message.kind) {
    case wire::Kind::kPut: {
      const Status stored = connection.job->store->put(message.key, message.value);
      wire::Message answer{.kind = stored ? wire::Kind::kDone : wire::Kind::kRefused};
      if (!stored) answer.text = stored.error().what;
      return reply(connection, answer);
    }
    case wire::Kind::kGet: return handle_get(connection, message);
    case wire::Kind::kEnter: return handle_enter(connection, message);
    case wire::Kind::kLeave: note_left(connection); return true;
    case wire::Kind::kFail:
      connection.job->store->fail(message.error);
      return reply(connection, {.kind = wire::Kind::kDone});
    default:
      log::info(log::Part::kJoin, "rendezvous: closed {}: an answer where a request was due",
                connection.peer);
      return false;
  }
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
  // The text becomes part of messages, which are one line each.
  std::replace_if(
      connection.process.begin(), connection.process.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return true;
}

void TcpServer::note_spoken(Connection& connection) {
  if (!std::exchange(connection.silent, false)) return;
  connection.job->owed.fetch_sub(1, std::memory_order_relaxed);
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
  if (message.kind == wire::Kind::kFailed) note_left(connection);  // It hears of the failure now.
  connection.head = wire::encode(message);
  connection.body = std::move(body);
  connection.sealed = 0;
  return flush(connection);
}

/// Seals the next part of the answer; false if all of it was sealed before.
bool TcpServer::seal_next(Connection& connection) {
  const std::size_t head = connection.head.size(), at = connection.sealed;
  std::span<const std::byte> rest;
  if (at < head)
    rest = std::span(connection.head).subspan(at);
  else if (connection.body)
    rest = std::span(*connection.body).subspan(at - head);
  connection.record.clear();
  connection.sent = 0;
  if (rest.empty()) return false;
  const auto part = rest.first(std::min(rest.size(), kMostRecordBytes));
  connection.sealer->seal(part, connection.record);
  connection.sealed += part.size();
  return true;
}

bool TcpServer::flush(Connection& connection) {
  while (connection.sent < connection.record.size() || seal_next(connection)) {
    const auto rest = std::span(connection.record).subspan(connection.sent);
    const ssize_t sent = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
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
  if (!std::exchange(connection.blocked, false)) return true;
  return static_cast<bool>(watch(epoll_.get(), EPOLL_CTL_MOD, connection.socket.get(),
                                 EPOLLIN | EPOLLRDHUP, connection.id));
}

}  // namespace tutti::bootstrap
