// Outgoing connections: one attempt after the other, until a peer proves to be the one that we look
// for.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {

void MeshBuilder::begin(Call& call, Time when) {
  call.patience = times_.first_patience;
  call.pause = times_.first_pause;
  call.failures = 0;
  call.next = when;
}

MeshBuilder::Call* MeshBuilder::call_of(int peer, int index) {
  for (Call& call : calls_) {
    if (call.peer == peer && call.index == index) return &call;
  }
  return nullptr;
}

/// A connection that is made anew comes from the address that it had: another address may lead over
/// a way that is in use. False: that address is gone.
bool MeshBuilder::bind_own(const Call& call) const {
  const std::string& own = wanted_[slot(call.peer, call.index)].own;
  for (const InterfaceAddress& one : joining_.addresses) {
    if (one.address.ip_text() == own)
      return ::bind(call.socket.get(), one.address.get(), one.address.length) == 0;
  }
  return true;
}

void MeshBuilder::start(Call& call) {
  const SocketAddress& address = call.candidates[call.candidate].there.address;
  const auto now = std::chrono::steady_clock::now();
  call.connected = false;
  call.next = now + call.patience;
  auto handshake = Handshake::connector(
      joining_.secret, {.from = joining_.me, .to = call.peer, .index = call.index});
  if (!handshake) return fail(call, handshake.error().what);
  call.handshake = *std::move(handshake);
  call.socket = Fd(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!call.socket) return fail(call, std::generic_category().message(errno));
  set_options(call.socket.get(), silence_, host_timeout_);
  if (!bind_own(call)) return fail(call, std::generic_category().message(errno));
  if (::connect(call.socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)
    return fail(call, std::generic_category().message(errno));
  const auto index = static_cast<std::uint64_t>(&call - calls_.data());
  if (!watch(epoll_.get(), EPOLL_CTL_ADD, call.socket.get(), EPOLLOUT,
             event_number(About::kCall, index))) {
    fail(call, "epoll refuses it");
  }
}

void MeshBuilder::on_call(Call& call) {
  if (!call.socket) return;  // Given up earlier in this round.
  if (!call.connected) {
    int failure = 0;
    socklen_t size = sizeof(failure);
    getsockopt(call.socket.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
    if (failure != 0) return fail(call, std::generic_category().message(failure));
    call.connected = true;
    const auto index = static_cast<std::uint64_t>(&call - calls_.data());
    if (!watch(epoll_.get(), EPOLL_CTL_MOD, call.socket.get(), EPOLLIN | EPOLLRDHUP,
               event_number(About::kCall, index))) {
      return fail(call, "epoll refuses it");
    }
  }
  if (const Status talked = talk(call.socket.get(), *call.handshake); !talked)
    return fail(call, talked.error().what);
  // From here on the other side may count on this connection: no more giving up.
  if (call.handshake->committed()) call.next = Time::max();
  if (!call.handshake->done()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call.socket.get(), nullptr);
  keep(call.peer, call.index, std::move(call.socket));
}

void MeshBuilder::fail(Call& call, const std::string& what) {
  const InterfaceAddress& there = call.candidates[call.candidate].there;
  call.last = there.interface + " " + there.address.text() + ": " + what;
  log::debug(log::Part::kNet, "tcp: {}, connection {}: {}", name(call.peer), call.index, call.last);
  if (call.socket) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call.socket.get(), nullptr);
  call.socket.reset();
  call.candidate = (call.candidate + 1) % call.candidates.size();
  call.next = std::chrono::steady_clock::now();
  if (static_cast<std::size_t>(++call.failures) % call.candidates.size() != 0) return;
  call.next += call.pause;
  call.pause = std::min(call.pause * 2, times_.longest_pause);
  call.patience = std::min(call.patience * 2, times_.longest_patience);
}

void MeshBuilder::end_calls(Time now) {
  for (Call& call : calls_) {
    if (call.next > now || !wanted_[slot(call.peer, call.index)].wanted) continue;
    if (call.socket)
      fail(call, call.connected ? "it does not answer" : "nothing answers");
    else
      start(call);
  }
}

}  // namespace tutti::tcp
