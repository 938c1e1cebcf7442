// Incoming connections, until they pass the handshake.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "base/net/evict.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

// While the process is out of descriptors, pending connections wait in the kernel's queue.
constexpr std::chrono::milliseconds kAcceptPause{20};

}  // namespace

Status talk(int socket, Handshake& handshake) {
  const auto failed = [](int number) {
    return Error{Code::kPeerFailed, std::generic_category().message(number)};
  };
  for (;;) {
    while (!handshake.to_send().empty()) {
      const auto bytes = handshake.to_send();
      const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      // A new socket takes so few bytes whole; if not, something is wrong with it.
      if (count < 0) return failed(errno);
      handshake.sent(static_cast<std::size_t>(count));
    }
    if (handshake.wanted() == 0) return ok();
    std::array<std::byte, kAnswerBytes> buffer;
    const auto into = std::span(buffer).first(std::min(buffer.size(), handshake.wanted()));
    const ssize_t count = ::recv(socket, into.data(), into.size(), 0);
    if (count == 0) return Error{Code::kPeerFailed, "it closed the connection"};
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN ? ok() : Status(failed(errno));
    TUTTI_RETURN_IF_ERROR(handshake.take(into.first(static_cast<std::size_t>(count))));
  }
}

void MeshBuilder::on_listener(const Listener& listener) {
  for (;;) {
    SocketAddress peer;
    peer.length = sizeof(peer.storage);
    Fd socket(
        ::accept4(listener.socket.get(), peer.get(), &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket) {
      if (errno != EAGAIN) {
        log::debug(log::Part::kNet, "tcp: accepting at {}: {}", listener.address.address.text(),
                   std::generic_category().message(errno));
        if (!pending_.empty()) evict("descriptors have run out");
        watch_listeners(false);  // Nothing here is worth a busy loop.
      }
      return;
    }
    auto handshake = Handshake::acceptor(joining_.secret, joining_.me);
    if (!handshake) return;
    const std::uint64_t id = next_pending_++;
    if (!watch(epoll_.get(), EPOLL_CTL_ADD, socket.get(), EPOLLIN | EPOLLRDHUP,
               event_number(About::kPending, id))) {
      continue;
    }
    pending_.emplace(
        id, PendingConnection{std::move(socket), *std::move(handshake), peer.text(), peer.ip_text(),
                              std::chrono::steady_clock::now() + times_.pending});
    // A rank says hello as soon as it is connected. So a flood of silent connections does not push
    // it out, however seldom this rank looks.
    on_pending(id);
    if (pending_.size() > most_pending_) evict("too many unauthenticated peers are waiting");
  }
}

/// Or leaves them alone for a while.
void MeshBuilder::watch_listeners(bool watched) {
  const std::uint32_t events = watched ? std::uint32_t{EPOLLIN} : 0;
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    (void)watch(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].socket.get(), events,
                event_number(About::kListener, i));
  }
  listeners_paused_until_.reset();
  if (!watched) listeners_paused_until_ = std::chrono::steady_clock::now() + kAcceptPause;
}

void MeshBuilder::on_pending(std::uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;  // Sent away earlier in this round.
  PendingConnection& pending = found->second;
  Status talked = talk(pending.socket.get(), pending.handshake);
  if (talked && pending.handshake.proven()) {
    if (!admit(pending)) return send_away(id, "it is not expected");
    talked = talk(pending.socket.get(), pending.handshake);  // The welcome.
    if (talked) {
      const Hello hello = pending.handshake.hello();
      epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, pending.socket.get(), nullptr);
      keep(hello.from, hello.index, std::move(pending.socket));
      pending_.erase(id);
      return;
    }
  }
  if (talked) return;
  // A peer of another version is to learn ours: talk stops before that is sent.
  const auto rest = pending.handshake.to_send();
  if (!rest.empty()) (void)::send(pending.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  send_away(id, talked.error().what);
}

bool MeshBuilder::admit(PendingConnection& pending) {
  const Hello& hello = pending.handshake.hello();
  // Only higher ranks connect to this one.
  if (hello.from <= joining_.me || hello.from >= joining_.rank_count) return false;
  if (slots_[static_cast<std::size_t>(hello.from)] < 0) return false;
  if (hello.index >= joining_.connections) return false;
  // Made anew, it is wanted once this rank knows that it is lost, and by the way that it had.
  const Wanted& what = wanted_[slot(hello.from, hello.index)];
  if (!joining_.exchange && (!what.wanted || what.own != own_end(pending.socket.get()).ip_text()))
    return false;
  pending.handshake.welcome();
  return true;
}

void MeshBuilder::evict(const std::string& why) {
  std::vector<Unproven> unproven;
  for (const auto& [id, pending] : pending_)
    unproven.push_back({id, pending.handshake.greeted(), pending.source});
  send_away(whom_to_evict(unproven), why);
}

void MeshBuilder::send_away(std::uint64_t id, const std::string& why) {
  const auto found = pending_.find(id);
  ++mesh_.unauthenticated;
  log::debug(log::Part::kNet, "tcp: turned away {} (unauthenticated peer no. {}): {}",
             found->second.name, mesh_.unauthenticated, why);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.socket.get(), nullptr);
  pending_.erase(found);
}

/// Sends late ones away, and lets new ones come again.
void MeshBuilder::end_pending(Time now) {
  if (listeners_paused_until_ && *listeners_paused_until_ <= now) watch_listeners(true);
  while (!pending_.empty() && pending_.begin()->second.until <= now)
    send_away(pending_.begin()->first, "it did not prove itself in time");
}

}  // namespace tutti::tcp
