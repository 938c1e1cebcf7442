// File: transport/net/replicator.h: the link (transport/remote_link.h) over a network that carries
// frames.
//
// Every rank has a replica of the region. The parts that a rank owns or writes are of a few kinds,
// each with a frame of its own:
//
//   lines     the call lines of a call, with that call and the one before from the rank's record
//   calls     the latest calls in that record, to a rank for which this one waits
//   packet    a call's packet slot; blocks: a call's table of blocks; both before the lines
//   slot      a slot of a ring to the peer (channel, messages) or to all (multicast)
//   counter   how far this rank has read a ring; signals; the calls that it has finished; the rank
//             for which it has waited long (RankStatus::waits_for)
//   note      the note to the peer, or the rank's board (note.h), behind all that it wrote before
//   abort     the abort word with its error
//   cpu       to ranks on the same machine: on which CPU this rank is now
//   left      the last frame of a rank that leaves: RankStatus::left
//
// The executor does not report which slots and counters have changed: the link compares them with
// the values that it has sent. Frames are announced in the order in which they were sent, and the
// thread that executes calls stores their contents. So a replica holds what its owner had written
// at some moment, and all the rules of region.h hold for it.
//
// Arriving frames are checked: a slot has to be the next one and free, a call line has to be one.
//
// Payloads that the network wrote into GPUDirect slots may have to be flushed before their readers
// see them: once for all that had come by one look, before the first of them is announced.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "transport/net/network.h"
#include "transport/region.h"
#include "transport/remote_link.h"

namespace tutti::net {

/// It has more than 20 functions: the link's interface, and its parts for each peer.
class Replicator final : public RemoteLink {
 public:
  /// Ranks without a carrier are not this link's business.
  struct Options {
    bool near = false;  // This rank also waits for some that share memory with it.
    /// By rank: whether it is on this machine, and so may be on the same CPU; empty: none is.
    std::vector<bool> on_machine = {};
    /// As GpuDirectSlots'.
    std::function<Status()> flush = {};
  };
  Replicator(const Region& region, int me, std::unique_ptr<Network> network,
             const Options& options);
  /// Waits until what was sent has arrived: a moment, or as long as say_left allowed. Does nothing
  /// in a forked child.
  ~Replicator() override;

  void publish(const Published& what) override;
  void show_calls(int to) override;
  void flush() override;
  bool progress() override;
  bool pending() const override;
  bool pending_to(int rank) const override;
  std::uint64_t taken_for(int rank) const override;
  bool allows_zero_copy(int to) const override;
  void send_zero_copy(int to, std::size_t lane, std::uint64_t position, SendBuffer data) override;
  bool is_sending(SendBuffer data) const override;
  void expect(int from, bool to_all, std::size_t lane, std::uint64_t position,
              std::span<std::byte> to) override;
  const std::byte* placed(int from, bool to_all, std::size_t lane,
                          std::uint64_t position) const override;
  void keep() override;
  void say_left(std::chrono::milliseconds longest) override;
  void sleep(std::chrono::nanoseconds longest) override;
  void wake() override { network_->wake(); }

  /// Why the connection with a rank is broken; nothing while it is not.
  const std::optional<Error>& failure(int peer) const;

 private:
  class Peer;
  Status flush_gpudirect();
  void say_abort();
  bool offer();
  bool exchange(int rank, bool look);
  void look_for_vanished();
  void send_all(std::chrono::steady_clock::time_point end);
  void await_delivery(std::chrono::steady_clock::time_point end);

  Region region_;
  int me_;
  int owner_;  // The process that made it.
  bool near_;
  std::unique_ptr<Network> network_;
  std::function<Status()> flush_gpudirect_;
  bool flushed_ = false;                                  // Since the last look.
  std::vector<std::unique_ptr<Peer>> peers_;              // By rank; null: none.
  std::vector<std::reference_wrapper<Peer>> some_peers_;  // Those that there are.
  std::vector<Published> published_;                      // The last kCalls; by count, modulo.
  std::uint64_t published_count_ = 0;
  bool abort_said_ = false;
  std::chrono::steady_clock::time_point farewell_end_{};  // When the limit of say_left is over.
  std::vector<bool> ready_;     // By rank: its carrier may have something.
  std::int64_t next_look_ = 0;  // For hosts that have vanished; by the coarse clock.
};

}  // namespace tutti::net
