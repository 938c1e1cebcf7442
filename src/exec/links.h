// File: exec/links.h: one rank's ends of all rings and signals of a communicator, with their
// positions.
//
// Positions outlive plans: every plan that runs on the communicator goes on where the last one
// ended. Only the thread that executes calls touches them.
#pragma once
#include <algorithm>
#include <vector>

#include "transport/region.h"
#include "transport/remote_link.h"

namespace tutti::exec {

/// The writing end of a channel or of a multicast ring.
class Outbox {
 public:
  Outbox() = default;
  Outbox(const Ring& ring, std::vector<Counter*> tails, std::vector<Doorbell*> readers, bool fence)
      : ring_(ring), tails_(std::move(tails)), readers_(std::move(readers)), fence_(fence) {}

  bool has_room() { return head_ - tail_seen_ < ring_.slot_count || refresh(); }
  std::byte* slot() const { return ring_.slot(head_); }
  /// The position of the slot that is committed next; it names it until a ring's length later.
  std::uint64_t position() const { return head_; }
  std::byte* slot_at(std::uint64_t position) const { return ring_.slot(position); }
  /// Whether all readers are done with the slot at a position.
  bool released(std::uint64_t position) {
    return position < tail_seen_ || (refresh(), position < tail_seen_);
  }
  /// The reader that is furthest behind, in the order in which they were given.
  std::size_t slowest_reader() const {
    const auto behind = [](const Counter* a, const Counter* b) {
      // relaxed: only to name the reader that is missed.
      return a->value.load(std::memory_order_relaxed) < b->value.load(std::memory_order_relaxed);
    };
    return static_cast<std::size_t>(std::ranges::min_element(tails_, behind) - tails_.begin());
  }
  /// `bytes` of the slot are used.
  void commit(std::size_t bytes) {
    if (ring_.used != nullptr)
      ring_.used[head_ % ring_.slot_count] = static_cast<std::uint32_t>(bytes);
    // release: publishes what was written into the slot.
    ring_.head->value.store(++head_, std::memory_order_release);
    for (Doorbell* reader : readers_) notify(*reader, fence_);
  }

 private:
  bool refresh() {
    std::uint64_t least = head_;
    for (const Counter* tail : tails_) {
      // acquire: the reader is done with the slot before we write into it again.
      least = std::min(least, tail->value.load(std::memory_order_acquire));
    }
    tail_seen_ = least;
    return head_ - tail_seen_ < ring_.slot_count;
  }

  Ring ring_;
  std::vector<Counter*> tails_;
  std::vector<Doorbell*> readers_;
  std::uint64_t head_ = 0, tail_seen_ = 0;
  bool fence_ = false;
};

/// The reading end.
class Inbox {
 public:
  Inbox() = default;
  Inbox(const Ring& ring, Counter* tail, Doorbell* writer, bool fence)
      : ring_(ring), tail_counter_(tail), writer_(writer), fence_(fence) {}

  bool has_slot() {
    if (tail_ < head_seen_) return true;
    // acquire: sees what the writer put into the slot.
    head_seen_ = ring_.head->value.load(std::memory_order_acquire);
    return tail_ < head_seen_;
  }
  const std::byte* slot() const { return ring_.slot(tail_); }
  /// The position of the slot that is read next.
  std::uint64_t position() const { return tail_; }
  /// The same slot, to leave a word for the writer before it is released.
  std::byte* slot_for_reply() const { return ring_.slot(tail_); }
  void release() {
    // release: our reads are over before the writer sees the slot free.
    tail_counter_->value.store(++tail_, std::memory_order_release);
    notify(*writer_, fence_);
  }

 private:
  Ring ring_;
  Counter* tail_counter_ = nullptr;
  Doorbell* writer_ = nullptr;
  std::uint64_t tail_ = 0, head_seen_ = 0;
  bool fence_ = false;
};

/// Signals to and from one peer.
class SignalPair {
 public:
  SignalPair() = default;
  SignalPair(Counter* outgoing, Counter* incoming, Doorbell* peer, bool fence)
      : outgoing_(outgoing), incoming_(incoming), peer_(peer), fence_(fence) {}
  void post() {
    // release: what we wrote to the peer's memory is there before the signal is.
    outgoing_->value.store(++sent_, std::memory_order_release);
    notify(*peer_, fence_);
  }
  bool take() {
    // acquire: pairs with the release in post.
    if (incoming_->value.load(std::memory_order_acquire) <= taken_) return false;
    ++taken_;
    return true;
  }

 private:
  Counter* outgoing_ = nullptr;
  Counter* incoming_ = nullptr;
  Doorbell* peer_ = nullptr;
  std::uint64_t sent_ = 0, taken_ = 0;
  bool fence_ = false;
};

/// All of them, by peer and lane.
class Links {
 public:
  /// `remote_link`: of this rank; null: all see each other's memory.
  Links(const Region& region, int me, RemoteLink* remote_link);
  RemoteLink* remote() const { return remote_link_; }
  Outbox& to(int peer, std::size_t lane) { return outboxes_[index(peer, lane)]; }
  Inbox& from(int peer, std::size_t lane) { return inboxes_[index(peer, lane)]; }
  Outbox& multicast(std::size_t lane) { return multicast_out_[lane]; }
  /// The rank that is furthest behind in reading what this one sends to all.
  int slowest_reader(std::size_t lane) const {
    const int among_peers = static_cast<int>(multicast_out_[lane].slowest_reader());
    return among_peers < me_ ? among_peers : among_peers + 1;
  }
  Inbox& multicast_from(int peer, std::size_t lane) { return multicast_in_[index(peer, lane)]; }
  SignalPair& signal(int peer, std::size_t lane) { return signals_[index(peer, lane)]; }

 private:
  std::size_t index(int peer, std::size_t lane) const {
    return static_cast<std::size_t>(peer) * lanes_ + lane;
  }
  std::size_t lanes_;
  int me_;
  RemoteLink* remote_link_;
  std::vector<Outbox> outboxes_, multicast_out_;
  std::vector<Inbox> inboxes_, multicast_in_;
  std::vector<SignalPair> signals_;
};

}  // namespace tutti::exec
