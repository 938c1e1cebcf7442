// Our way to others: one connection after the other attempt, until somebody proves to be who we
// look for.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

using std::chrono::milliseconds;

// One attempt at one address; doubled while nobody answers. An address that leads nowhere must not
// use up the time, and a rank that is busy must get its chance.
constexpr milliseconds kFirstPatience{300}, kLongestPatience{10'000};
// After all addresses of a peer have failed.
constexpr milliseconds kFirstPause{2}, kLongestPause{500};

}  // namespace

void MeshBuilder::start(Call& call) {
  if (call.patience.count() == 0) {
    call.patience = kFirstPatience;
    call.pause = kFirstPause;
  }
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
  set_options(call.socket.get(), silence_);
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
  log::debug("tcp: {}, connection {}: {}", name(call.peer), call.index, call.last);
  if (call.socket) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, call.socket.get(), nullptr);
  call.socket.reset();
  call.candidate = (call.candidate + 1) % call.candidates.size();
  call.next = std::chrono::steady_clock::now();
  if (static_cast<std::size_t>(++call.failures) % call.candidates.size() != 0) return;
  call.next += call.pause;
  call.pause = std::min(call.pause * 2, kLongestPause);
  call.patience = std::min(call.patience * 2, kLongestPatience);
}

void MeshBuilder::end_calls(Time now) {
  for (Call& call : calls_) {
    if (call.next > now || mesh_.connections[slot(call.peer, call.index)].socket) continue;
    if (call.socket)
      fail(call, call.connected ? "it does not answer" : "nothing answers");
    else
      start(call);
  }
}

}  // namespace tutti::tcp
