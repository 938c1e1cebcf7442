// File: transport/tcp/mirror.h: the wire (transport/wire.h) over TCP connections.
//
// Every rank has an image of the region. What a rank owns or writes in it falls into four kinds,
// and each has a frame:
//
//   lines     the call lines of a call, with the rank's call record
//   packet    a call's packet slot; blocks: a call's table of blocks; both before the lines
//   slot      a slot of a ring to the peer (channel, messages) or to all (multicast)
//   counter   how far this rank has read a ring; signals; the calls that it has finished
//   abort     the abort word with its error
//
// Nobody tells the wire which slots and counters have changed: it compares them with what it has
// sent. Frames are announced in the order in which they were sent, and what they announce is stored
// by the thread that executes calls; so an image is what its owner had written at some moment, and
// all the rules of region.h hold for it.
//
// What comes is checked: a slot has to be the next one and free, a call line has to be one.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "transport/region.h"
#include "transport/tcp/bundle.h"
#include "transport/wire.h"

namespace tutti::tcp {

class Mirror final : public Wire {
 public:
  /// `connections`: of each peer those with it. Ranks without are not this wire's business.
  /// `near`: this rank also waits for some that share memory with it.
  Mirror(const Region& region, int me, std::vector<std::vector<Connection>> connections, bool near);
  /// Waits a moment for what has been sent to arrive.
  ~Mirror() override;

  void publish(const Published& what) override;
  bool progress() override;
  bool pending() const override;
  void sleep(std::chrono::nanoseconds longest) override;
  void wake() override;

  /// Why the connection with a rank is broken; nothing while it is not.
  const std::optional<Error>& failure(int peer) const;

 private:
  class Peer;
  void say_abort();
  bool exchange(Peer& peer);
  bool exchange_ready();

  Region region_;
  int me_;
  bool near_;
  std::vector<std::unique_ptr<Peer>> peers_;  // By rank; null: none.
  std::vector<Published> published_;          // The last kCalls; by count, modulo.
  std::uint64_t published_count_ = 0;
  bool abort_said_ = false;
  std::vector<bool> ready_;  // By rank: its connections have something.
  Fd ready_set_;             // An epoll of all connections.
  Fd alarm_;                 // An eventfd: wakes whoever sleeps.
};

}  // namespace tutti::tcp
