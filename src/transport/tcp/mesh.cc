#include "transport/tcp/mesh.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/long_wait.h"
#include "base/threads.h"
#include "transport/tcp/mesh_builder.h"

namespace tutti::tcp {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

// Unauthenticated peers that may wait at a time, besides the ranks that are expected.
constexpr std::size_t kMostUnauthenticated = 64;
// A host that vanishes is to be noticed long before the deadline of a call, which may be a day; a
// switch that starts anew is to be survived by jobs that are given time.
constexpr std::chrono::milliseconds kLeastHostTimeout{10'000}, kMostHostTimeout{60'000};
constexpr int kBacklog = 4096;  // The kernel cuts it to net.core.somaxconn.
// How many of the missing ranks are described.
constexpr std::size_t kMostDescribed = 4;
// The pause between two calls of Opening::look.
constexpr int kGlanceMs = 20;
// Later each end looks ten times a second at best, and not at all between calls; an attempt takes
// four looks of both. And what is lost may stay so for hours.
constexpr MeshTimes kWhileJoining{.pending = 10s,
                                  .first_patience = 300ms,
                                  .longest_patience = 10s,
                                  .first_pause = 2ms,
                                  .longest_pause = 500ms};
constexpr MeshTimes kLater{.pending = 60s,
                           .first_patience = 2s,
                           .longest_patience = 60s,
                           .first_pause = 500ms,
                           .longest_pause = 30s};

Error system_error(const std::string& what, int number) {
  return {Code::kSystem, "tcp: " + what + ": " + std::generic_category().message(number)};
}

milliseconds time_left(Deadline deadline) {
  return std::chrono::ceil<milliseconds>(deadline.at - steady_clock::now());
}

Status check(const Joining& joining) {
  const auto bad = [](const std::string& what) {
    return Error{Code::kInvalidArgument, "tcp: joining a mesh with " + what};
  };
  if (joining.connections < 1 || joining.connections > kMostConnections)
    return bad(fmt::format("{} connections to a rank; it takes 1 to {}", joining.connections,
                           kMostConnections));
  if (joining.addresses.empty()) return bad("no address");
  std::vector<int> peers = joining.peers;
  std::sort(peers.begin(), peers.end());
  if (std::adjacent_find(peers.begin(), peers.end()) != peers.end()) return bad("a peer twice");
  for (const int peer : peers) {
    if (peer < 0 || peer >= joining.rank_count || peer == joining.me)
      return bad(
          fmt::format("rank {} as a peer of rank {} of {}", peer, joining.me, joining.rank_count));
  }
  return ok();
}

}  // namespace

Status watch(int epoll, int operation, int descriptor, std::uint32_t events, std::uint64_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = number;
  if (epoll_ctl(epoll, operation, descriptor, &event) != 0) return system_error("epoll", errno);
  return ok();
}

MeshBuilder::MeshBuilder(const Joining& joining)
    : joining_(joining),
      silence_(time_left(joining.deadline)),
      host_timeout_(std::clamp(silence_ / 6, kLeastHostTimeout, kMostHostTimeout)),
      start_(steady_clock::now()),
      times_(kWhileJoining) {}

Status MeshBuilder::open_listeners() {
  std::string reasons;
  for (const InterfaceAddress& one : joining_.addresses) {
    Listener listener{
        Fd(::socket(one.address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), one};
    const int on = 1;
    if (listener.socket) {
      set_options(listener.socket.get(), silence_,
                  host_timeout_);  // Accepted sockets inherit them.
      if (one.address.family() == AF_INET6)
        setsockopt(listener.socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    }
    if (!listener.socket ||
        ::bind(listener.socket.get(), one.address.get(), one.address.length) != 0 ||
        ::listen(listener.socket.get(), kBacklog) != 0) {
      const int number = errno;
      reasons += (reasons.empty() ? "" : "; ") + describe(one) + ": " +
                 std::generic_category().message(number);
      continue;
    }
    listener.address.address.set_port(own_end(listener.socket.get()).port());
    TUTTI_RETURN_IF_ERROR(watch(epoll_.get(), EPOLL_CTL_ADD, listener.socket.get(), EPOLLIN,
                                event_number(About::kListener, listeners_.size())));
    listeners_.push_back(std::move(listener));
  }
  if (listeners_.empty()) {
    return Error{Code::kSystem,
                 fmt::format("tcp: rank {} ({}) can't listen at any of its addresses: "
                             "{}; TUTTI_NET_INTERFACES names others",
                             joining_.me, joining_.host, reasons)};
  }
  if (!reasons.empty()) log::warn(log::Part::kNet, "tcp: not listening at {}", reasons);
  return ok();
}

Status MeshBuilder::exchange_endpoint_info() {
  EndpointInfo mine{joining_.host, {}};
  for (const Listener& listener : listeners_) mine.addresses.push_back(listener.address);
  TUTTI_TRY(const auto all, joining_.exchange("tcp", encode(mine)));
  if (all.size() != static_cast<std::size_t>(joining_.rank_count))
    return Error{Code::kInternal, "tcp: the exchange of addresses gave the wrong number of them"};
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto info = parse_endpoint_info(all[rank]);
    if (!info) {
      return Error{Code::kMismatch,
                   fmt::format("tcp: what rank {} says of its addresses makes no sense: all ranks "
                               "need the same Tutti",
                               rank),
                   Rank{joining_.me}, Rank{static_cast<int>(rank)}};
    }
    endpoints_.push_back(*std::move(info));
  }
  return ok();
}

/// A place for each connection. That comes before the exchange: a peer for which the exchange went
/// well connects to this rank, for which it may have failed.
void MeshBuilder::expect_peers() {
  std::sort(joining_.peers.begin(), joining_.peers.end());
  slots_.assign(static_cast<std::size_t>(joining_.rank_count), -1);
  most_pending_ = kMostUnauthenticated;
  for (const int peer : joining_.peers) {
    slots_[static_cast<std::size_t>(peer)] = static_cast<int>(mesh_.connections.size());
    for (int index = 0; index < joining_.connections; ++index) {
      Connection& connection = mesh_.connections.emplace_back();
      connection.peer = peer;
      connection.index = index;
      wanted_.emplace_back();
    }
    if (peer > joining_.me) most_pending_ += static_cast<std::size_t>(joining_.connections);
  }
}

Status MeshBuilder::make_calls() {
  for (const int peer : joining_.peers) {
    if (peer > joining_.me) break;  // They call this rank.
    const EndpointInfo& info = endpoints_[static_cast<std::size_t>(peer)];
    const auto ways = candidates(joining_.addresses, info);
    if (ways.empty()) {
      return Error{
          Code::kUnsupported,
          fmt::format("tcp: {} has no address that rank {} ({}) could reach, which is at "
                      "{}; TUTTI_NET_INTERFACES names others",
                      name(peer), joining_.me, joining_.host, describe(joining_.addresses.front())),
          Rank{joining_.me}, Rank{peer}};
    }
    const std::size_t rail_count = rails(ways);
    for (int index = 0; index < joining_.connections; ++index) {
      Call call;
      call.peer = peer;
      call.index = index;
      call.candidates = ways;
      call.candidate = static_cast<std::size_t>(index) % rail_count;
      begin(call, start_);
      calls_.push_back(std::move(call));
    }
  }
  return ok();
}

std::size_t MeshBuilder::slot(int peer, int index) const {
  const int first = slots_[static_cast<std::size_t>(peer)];
  TUTTI_CHECK(first >= 0);
  return static_cast<std::size_t>(first) + static_cast<std::size_t>(index);
}

void MeshBuilder::keep(int peer, int index, Fd socket) {
  Connection& connection = mesh_.connections[slot(peer, index)];
  const SocketAddress own = own_end(socket.get());
  connection.where = fmt::format("{} over {}, {} to {}", name(peer), interface_of(own), own.text(),
                                 far_end(socket.get()).text());
  connection.silence_ms = static_cast<int>(silence_.count());
  connection.host_timeout_ms = static_cast<int>(host_timeout_.count());
  connection.socket = std::move(socket);
  wanted_[slot(peer, index)] = {.wanted = false, .own = own.ip_text()};
  log::debug(log::Part::kNet, "tcp: connection {} with {}", index, connection.where);
}

std::string MeshBuilder::name(int peer) const {
  const auto index = static_cast<std::size_t>(peer);
  return fmt::format("rank {} ({})", peer,
                     index < endpoints_.size() ? endpoints_[index].host : "?");
}

std::string MeshBuilder::interface_of(const SocketAddress& own) const {
  for (const InterfaceAddress& one : joining_.addresses) {
    if (one.address.ip_text() == own.ip_text()) return one.interface;
  }
  return "an interface that was not chosen";
}

int MeshBuilder::milliseconds_to_next() const {
  Time next = joining_.deadline.at;
  for (const Call& call : calls_) {
    if (wanted_[slot(call.peer, call.index)].wanted) next = std::min(next, call.next);
  }
  if (!pending_.empty()) next = std::min(next, pending_.begin()->second.until);
  if (listeners_paused_until_) next = std::min(next, *listeners_paused_until_);
  const auto left = std::chrono::ceil<milliseconds>(next - steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

Status MeshBuilder::loop() {
  LongWait wait(joining_.me);
  while (!complete()) {
    if (joining_.deadline.passed()) return missing();
    wait.look([this] { return "no connection with " + describe_missing(missing_ranks()); });
    end_calls(steady_clock::now());
    end_pending(steady_clock::now());
    if (!joining_.look) {
      TUTTI_RETURN_IF_ERROR(round(milliseconds_to_next()));
      continue;
    }
    TUTTI_RETURN_IF_ERROR(joining_.look());
    TUTTI_RETURN_IF_ERROR(round(std::min(milliseconds_to_next(), kGlanceMs)));
  }
  return ok();
}

/// Events that have happened, or happen within that time.
Status MeshBuilder::round(int longest_ms) {
  std::array<epoll_event, 64> events{};
  constexpr std::uint64_t kIndexMask = (std::uint64_t{1} << kAboutShift) - 1;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), longest_ms);
  if (count < 0 && errno != EINTR) return system_error("epoll", errno);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
    const std::uint64_t index = number & kIndexMask;
    switch (static_cast<About>(number >> kAboutShift)) {
      case About::kListener: on_listener(listeners_[index]); break;
      case About::kCall: on_call(calls_[index]); break;
      case About::kPending: on_pending(index); break;
      case About::kStop: break;  // The caller looks.
    }
  }
  return ok();
}

std::string MeshBuilder::missing_peer(int peer) const {
  if (peer < joining_.me) {
    for (const Call& call : calls_) {
      if (call.peer == peer && wanted_[slot(peer, call.index)].wanted)
        return name(peer) + " at " + (call.last.empty() ? "an address not yet tried" : call.last);
    }
  }
  std::string listeners;
  for (const Listener& listener : listeners_)
    listeners += (listeners.empty() ? "" : " or ") + listener.address.interface + " " +
                 listener.address.address.text();
  return name(peer) + " did not come to " + listeners;
}

std::vector<int> MeshBuilder::missing_ranks() const {
  std::vector<int> ranks;
  for (const Connection& one : mesh_.connections) {
    if (!one.socket && (ranks.empty() || ranks.back() != one.peer)) ranks.push_back(one.peer);
  }
  return ranks;
}

/// "ranks 1, 2: rank 1 (node1) at ...; rank 2 (node2) at ...".
std::string MeshBuilder::describe_missing(const std::vector<int>& ranks) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMostDescribed); ++i)
    text += (text.empty() ? "" : "; ") + missing_peer(ranks[i]);
  return fmt::format("{} {}: {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                     text);
}

Error MeshBuilder::missing() const {
  const std::vector<int> ranks = missing_ranks();
  const std::chrono::duration<double> waited = steady_clock::now() - start_;
  return {Code::kTimeout,
          fmt::format("tcp: rank {} ({}) waited {:.3g} s for {}; check that these processes "
                      "run and that no firewall is between, or name interfaces in "
                      "TUTTI_NET_INTERFACES",
                      joining_.me, joining_.host, waited.count(), describe_missing(ranks)),
          Rank{joining_.me}, Rank{ranks.front()}};
}

/// Waits until all ranks have their connections, and accepts connections meanwhile. This rank
/// counts on a connection as soon as it has sent the welcome. If the welcome is lost with the
/// connection, the connector begins again, and this rank has to answer.
Status MeshBuilder::await_all() {
  const Fd stop(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!stop) return system_error("eventfd", errno);
  TUTTI_RETURN_IF_ERROR(
      watch(epoll_.get(), EPOLL_CTL_ADD, stop.get(), EPOLLIN, event_number(About::kStop, 0)));
  std::atomic<bool> stopped{false};
  TUTTI_TRY(auto accepting, start_thread<std::jthread>("tcp: accepting connections", [&] {
              // relaxed: it only ends the loop; what this thread wrote is seen after the join.
              while (!stopped.load(std::memory_order_relaxed)) {
                end_pending(steady_clock::now());
                if (!round(std::max(milliseconds_to_next(), kGlanceMs))) return;
              }
            }));
  const auto all = joining_.exchange("tcp joined", std::array{std::byte{1}});
  stopped.store(true, std::memory_order_relaxed);  // relaxed: as above.
  const std::uint64_t one = 1;
  (void)!::write(stop.get(), &one, sizeof(one));
  accepting.join();
  return all ? ok() : Status(all.error());
}

Result<Mesh> MeshBuilder::run() {
  epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return system_error("epoll", errno);
  expect_peers();
  TUTTI_RETURN_IF_ERROR(open_listeners());
  TUTTI_RETURN_IF_ERROR(exchange_endpoint_info());
  TUTTI_RETURN_IF_ERROR(make_calls());
  TUTTI_RETURN_IF_ERROR(loop());
  if (joining_.connections > 1) TUTTI_RETURN_IF_ERROR(await_all());
  Mesh made = take_all();
  for (Call& call : calls_) call.candidates = {call.candidates[std::exchange(call.candidate, 0)]};
  times_ = kLater;
  joining_.exchange = nullptr;
  joining_.look = nullptr;
  return made;
}

/// Takes a connection out and leaves its place, to which a new one may come.
Connection MeshBuilder::take(Connection& connection) {
  Connection taken = std::exchange(connection, {});
  connection.peer = taken.peer;
  connection.index = taken.index;
  return taken;
}

Mesh MeshBuilder::take_all() {
  Mesh made;
  made.unauthenticated = mesh_.unauthenticated;
  for (Connection& one : mesh_.connections) {
    if (one.socket) made.connections.push_back(take(one));
  }
  return made;
}

Mesh MeshBuilder::reached() {
  (void)round(0);  // The other side may count on a connection whose last message has just come.
  return take_all();
}

std::optional<Connection> MeshBuilder::again(int peer, int index) {
  const std::size_t at = slot(peer, index);
  Connection& connection = mesh_.connections[at];
  if (!connection.socket && !std::exchange(wanted_[at].wanted, true)) {
    if (Call* const call = call_of(peer, index)) begin(*call, steady_clock::now());
  }
  (void)round(0);  // Before the time of any is up: it may be long since the last look.
  end_calls(steady_clock::now());
  end_pending(steady_clock::now());
  if (!connection.socket) return std::nullopt;
  return take(connection);
}

void MeshBuilder::drop(int peer, int index) {
  const std::size_t at = slot(peer, index);
  mesh_.connections[at].socket.reset();
  wanted_[at].wanted = false;
  if (Call* const call = call_of(peer, index)) call->socket.reset();  // And so from epoll's list.
}

Result<Mesh> connect_mesh(const Joining& joining, Mesh* reached) {
  TUTTI_RETURN_IF_ERROR(check(joining));
  auto builder = std::make_shared<MeshBuilder>(joining);
  auto mesh = builder->run();
  if (!mesh && reached != nullptr) *reached = builder->reached();
  if (mesh && joining.connections > 1) mesh->builder = std::move(builder);
  return mesh;
}

}  // namespace tutti::tcp
