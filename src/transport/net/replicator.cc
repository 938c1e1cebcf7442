#include "transport/net/replicator.h"

#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "transport/net/replicator_peer.h"
#include "tutti/rendezvous.h"

namespace tutti::net {
namespace {

// No system call waits for a network and for a futex that ranks of this host would wake.
constexpr std::chrono::microseconds kNearNap{50};
// How long, at least, a rank that leaves waits until its last frames are acknowledged.
constexpr std::chrono::milliseconds kLastWords{1000};
constexpr std::chrono::milliseconds kLongestNap{20};
// An acknowledgement of the peer's system wakes nobody.
constexpr std::chrono::microseconds kAcknowledgementNap{100};
constexpr std::int64_t kVanishedLookMs = 200;

}  // namespace

Replicator::Replicator(const Region& region, int me, std::unique_ptr<Network> network,
                       const Options& options)
    : region_(region),
      me_(me),
      owner_(getpid()),
      near_(options.near),
      network_(std::move(network)),
      flush_gpudirect_(options.flush),
      published_(kCalls),
      ready_(region.config().rank_count) {
  TUTTI_CHECK(region.config().replica != 0);
  for (int rank = 0; rank < static_cast<int>(region.config().rank_count); ++rank) {
    Carrier* const carrier = network_->carrier(rank);
    const bool mate =
        !options.on_machine.empty() && options.on_machine[static_cast<std::size_t>(rank)];
    peers_.push_back(carrier == nullptr ? nullptr
                                        : std::make_unique<Peer>(*this, rank, *carrier, mate));
    if (carrier != nullptr) some_peers_.emplace_back(*peers_.back());
  }
}

Replicator::~Replicator() {
  if (getpid() != owner_) {  // After a fork: the connections belong to the parent, which goes on.
    (void)network_.release();
    return;
  }
  for (Peer& peer : some_peers_) {
    if (!peer.failure) peer.carrier().leave();
  }
  const auto last = std::chrono::steady_clock::now() + kLastWords;
  // A slow network may take longer to deliver what the others still need.
  const auto waits = [&](Carrier& carrier) {
    const auto now = std::chrono::steady_clock::now();
    return now < last || (now < farewell_end_ && carrier.delivering());
  };
  for (Peer& peer : some_peers_) {
    while (!peer.failure && !peer.carrier().left() && waits(peer.carrier()))
      std::this_thread::sleep_for(kAcknowledgementNap);
  }
}

void Replicator::publish(const Published& what) {
  published_[published_count_ % published_.size()] = what;
  ++published_count_;
  flush();
}

void Replicator::show_calls(int to) {
  const auto& peer = peers_[static_cast<std::size_t>(to)];
  if (peer != nullptr && !peer->failure) peer->show_calls();
}

void Replicator::say_abort() {
  abort_said_ = true;
  const Error error = region_.abort_error();
  for (Peer& peer : some_peers_) peer.say_abort(error);
}

/// Queues what this rank wrote.
bool Replicator::offer() {
  bool moved = false;
  if (region_.aborted() && !abort_said_) say_abort();
  for (Peer& peer : some_peers_) {
    if (!peer.failure) moved = peer.offer(published_, published_count_) || moved;
  }
  return moved;
}

void Replicator::flush() {
  offer();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer* const peer = peers_[rank].get();
    if (peer != nullptr && !peer->failure && peer->carrier().pending() != 0)
      exchange(static_cast<int>(rank), false);
  }
}

/// Before what came apart is announced.
Status Replicator::flush_gpudirect() {
  if (flushed_ || flush_gpudirect_ == nullptr) return ok();
  TUTTI_RETURN_IF_ERROR(flush_gpudirect_());
  flushed_ = true;
  return ok();
}

bool Replicator::progress() {
  bool moved = offer();
  network_->look(ready_);
  flushed_ = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer* const peer = peers_[rank].get();
    if (peer == nullptr || peer->failure) continue;
    if (ready_[rank] || peer->carrier().pending() != 0)
      moved = exchange(static_cast<int>(rank), true) || moved;
    ready_[rank] = false;
  }
  if (coarse_ms() >= next_look_) look_for_vanished();
  return moved;
}

void Replicator::look_for_vanished() {
  next_look_ = coarse_ms() + kVanishedLookMs;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer* const peer = peers_[rank].get();
    if (peer == nullptr || peer->failure) continue;
    peer->failure = peer->carrier().vanished();
    if (peer->failure) network_->forget(static_cast<int>(rank));
  }
}

bool Replicator::exchange(int rank, bool look) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const bool moved = peer.exchange(look);
  if (peer.failure) network_->forget(rank);  // A carrier that has ended is always ready.
  return moved;
}

bool Replicator::pending() const {
  return std::ranges::any_of(some_peers_,
                             [this](const Peer& peer) { return peer.pending(published_count_); });
}

bool Replicator::pending_to(int rank) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  return peer != nullptr && peer->pending(published_count_);
}

std::uint64_t Replicator::taken_for(int rank) const {
  const auto& peer = peers_[static_cast<std::size_t>(rank)];
  return peer != nullptr ? peer->taken() : 0;
}

bool Replicator::allows_zero_copy(int to) const {
  const auto can = [this](int rank) {
    const auto& peer = peers_[static_cast<std::size_t>(rank)];
    return peer != nullptr && peer->allows_zero_copy();
  };
  if (to != kAll) return can(to);
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != me_ && !can(rank)) return false;
  }
  return true;
}

void Replicator::send_zero_copy(int to, std::size_t lane, std::uint64_t position, SendBuffer data) {
  for (Peer& peer : some_peers_) peer.expect_not(data);
  if (to != kAll)
    return peers_[static_cast<std::size_t>(to)]->send_zero_copy(false, lane, position, data);
  for (Peer& peer : some_peers_) peer.send_zero_copy(true, lane, position, data);
}

bool Replicator::is_sending(SendBuffer data) const {
  return std::ranges::any_of(some_peers_, [&](const Peer& peer) { return peer.is_sending(data); });
}

void Replicator::expect(int from, bool to_all, std::size_t lane, std::uint64_t position,
                        std::span<std::byte> to) {
  const auto& peer = peers_[static_cast<std::size_t>(from)];
  if (peer != nullptr && peer->allows_zero_copy()) peer->expect(to_all, lane, position, to);
}

const std::byte* Replicator::placed(int from, bool to_all, std::size_t lane,
                                    std::uint64_t position) const {
  const auto& peer = peers_[static_cast<std::size_t>(from)];
  return peer != nullptr ? peer->placed(to_all, lane, position) : nullptr;
}

void Replicator::keep() {
  for (Peer& peer : some_peers_) peer.keep();
}

/// Returns once the network has taken all that this rank wrote, or no peer takes anything any more.
void Replicator::send_all(std::chrono::steady_clock::time_point end) {
  const auto delivering = [](const Peer& peer) {
    return !peer.failure && peer.carrier().delivering();
  };
  auto moved = std::chrono::steady_clock::now();
  while (pending()) {
    const bool some = progress();
    const auto now = std::chrono::steady_clock::now();
    if (some) moved = now;
    if (now >= end || (now - moved > kLastWords && std::ranges::none_of(some_peers_, delivering)))
      return;
    if (!some) sleep(std::min<std::chrono::nanoseconds>(end - now, kLongestNap));
  }
}

/// Returns once a connection that is reset can't lose what was sent over it: whatever it loses is
/// sent again over another one. A peer with a single connection has nothing to send again. The
/// destructor waits for such a peer.
void Replicator::await_delivery(std::chrono::steady_clock::time_point end) {
  for (Peer& peer : some_peers_) {
    bool looked = false;
    while (!peer.failure && peer.carrier().held() != 0 && std::chrono::steady_clock::now() < end) {
      const bool delivering = peer.carrier().pending() != 0 || peer.carrier().delivering();
      // Nothing is on its way over a connection that was reset either: look once more.
      if (!delivering && looked) break;
      looked = !delivering;
      if (!progress() && delivering) sleep(kAcknowledgementNap);
    }
  }
}

void Replicator::say_left(std::chrono::milliseconds longest) {
  farewell_end_ = Deadline::after(longest).at;
  send_all(farewell_end_);
  // relaxed: this thread set it.
  const std::uint64_t left = region_.status(me_).left.load(std::memory_order_relaxed);
  for (Peer& peer : some_peers_) peer.say_left(left);
  send_all(farewell_end_);
  await_delivery(farewell_end_);
}

void Replicator::sleep(std::chrono::nanoseconds longest) {
  network_->sleep(near_ ? std::min<std::chrono::nanoseconds>(longest, kNearNap) : longest);
}

const std::optional<Error>& Replicator::failure(int peer) const {
  static const std::optional<Error> kNone;
  const auto& at = peers_[static_cast<std::size_t>(peer)];
  return at == nullptr ? kNone : at->failure;
}

}  // namespace tutti::net
