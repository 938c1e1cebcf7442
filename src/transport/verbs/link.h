// File: transport/verbs/link.h: the queue pairs with one peer, used as one.
//
// Each frame is a record (record.h) that is written into the peer's ring with an immediate, which
// gives the peer a completion. A short payload is in the record. A long one lies in the region or
// in the replica, which are laid out alike on both sides: it is written to its place in the peer's
// memory, without a copy, by the same queue pair and before its record. So is a payload in a
// GPUDirect slot (transport/gpudirect_slots.h), whatever its length: nothing here reads or writes
// there. No other order is relied upon: frames of several queue pairs are announced by sequence,
// and payloads for one place always go by the same queue pair.
//
// A ring has room for `depth` records of each queue pair; each record says how many of the other
// direction were consumed. A few places are kept for records that say only that, so both sides can
// always go on.
//
// Payloads that the device has count as released: a rank that reuses their memory (a ring's slot, a
// packet slot) has heard from the peer before, as with shared memory, and a queue pair keeps writes
// in order.
//
// A peer that says nothing is asked for a sign of life by an empty write, which its device answers.
//
// One thread at a time; nothing blocks, and nothing allocates after construction.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/network.h"
#include "transport/verbs/device.h"
#include "transport/verbs/record.h"

namespace tutti::verbs {

/// Memory of a peer, as it tells.
struct RemoteMemory {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t key = 0;
};
/// Memory of this rank that the device knows.
struct LocalMemory {
  std::span<std::byte> bytes;
  std::uint32_t key = 0;
};

/// Ranges of what lies apart: of this rank those for the peer, and the peer's one for `out`.
struct GpuDirectMemories {
  LocalMemory out, in;
  RemoteMemory peer_in;
};

/// It has more than 15 fields: all that a link with a peer over a port has besides queue pairs.
struct LinkParts {
  int me = 0, peer = 0;
  std::uint32_t index = 0;             // Its index in tickets.
  std::string where;                   // "verbs: rank 3 (node7) over ...".
  std::string peer_host, peer_device;  // Parts of such a name.
  std::uint32_t depth = 0;             // Records that each queue pair's ring holds, on both sides.
  std::uint32_t inline_bytes = 0;
  std::uint32_t most_message = 0;  // Bytes of one write.
  std::size_t told_bytes = 0;      // The device tells at least every so many that they arrived.
  LocalMemory near, replica;       // Where payloads lie,
  RemoteMemory peer_near, peer_replica;  // and where they land: those of near in peer_replica.
  GpuDirectMemories gpudirect;           // If some do.
  LocalMemory in, out;                   // Rings of records: by queue pair, by place.
  RemoteMemory peer_in;                  // Where those of `out` go.
  std::chrono::steady_clock::duration patience{};  // Until silence is an error.
};

/// For a queue pair whose ring holds so many records.
ibv_qp_cap capacity(std::uint32_t depth);
/// Completions that may be outstanding.
std::size_t completions(std::uint32_t depth);

/// It has more than 20 functions: a carrier's interface, and a step for each kind of completion.
class Link final : public net::Carrier, private CompletionSink {
 public:
  /// At most kMostPairs, connected. It gets the completions of its tickets from `device`, which
  /// outlives it.
  Link(Device& device, LinkParts parts, std::vector<Pair> pairs);
  ~Link() override { device_.detach(parts_.index, *this); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Takes what the peer writes: once, before the peer may.
  Status begin();

  void send(net::FrameHeader header, std::span<const net::Piece> pieces) override;
  using Carrier::send;
  Result<bool> progress(net::FrameSink& sink) override;
  Result<bool> flush() override;
  std::size_t pending() const override { return static_cast<std::size_t>(queued_ - taken_); }
  /// Payloads that the device has count until they are known to have arrived.
  std::size_t unsent_bytes() const override;
  bool gpudirect(net::Piece payload) const override;
  std::string where() const override { return parts_.where; }
  std::optional<Error> stuck() override;
  /// Its queue pairs are destroyed: after that no device reads or writes memory for them.
  void abandon() override;
  void leave() override;
  bool left() override;

  /// Whether progress() has something to receive or to report.
  bool ready() const override;
  /// Asks for a sign of life if there was none for a while. Now and then.
  void tick(std::chrono::steady_clock::time_point now);
  /// Writes nothing to the peer, and asks the device to tell when that was acknowledged.
  void probe(std::chrono::steady_clock::time_point now);
  bool probing() const {
    return std::ranges::any_of(pairs_, [](const QueuePair& at) { return at.done < at.probe; });
  }
  const std::optional<Error>& failure() const { return failure_; }
  /// Ends it: the peer's next write fails.
  void give_up();
  bool abandoned() const { return abandoned_; }
  const LinkParts& parts() const { return parts_; }
  std::size_t pair_count() const { return pairs_.size(); }
  /// Writes a record without a frame, and a probe: once both are answered, the peer's device has
  /// told the peer that something came.
  void greet(std::chrono::steady_clock::time_point now);
  /// For tests, which want to see all rails used, and which break some.
  std::uint64_t bytes_given() const {
    std::uint64_t bytes = 0;
    for (const QueuePair& at : pairs_) bytes += at.bytes_posted;
    return bytes;
  }
  ibv_qp* pair(std::size_t at) const { return pairs_[at].pair.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostWrites = 64;  // Posted at once.

  struct Frame {
    net::FrameHeader header;
    std::array<net::Piece, net::kMostPieces> pieces;
    std::size_t count = 0;
  };
  /// It has more than 15 fields: a queue pair's rings, counters and what is under way.
  struct QueuePair {
    Pair pair;
    // Records.
    std::uint64_t sent = 0;        // Written to the peer's ring,
    std::uint64_t taken = 0;       // and consumed by the peer.
    std::uint64_t arrived = 0;     // In this rank's ring,
    std::uint64_t consumed = 0;    // and consumed.
    std::uint64_t advertised = 0;  // That the peer knows of.
    std::uint64_t receives = 0;    // Posted.
    // Writes.
    std::uint64_t posted = 0, done = 0, signaled = 0;
    std::uint64_t probe = 0;  // The write that asked for a sign of life, by count.
    // Bytes of writes, and of those that are done; and by write, modulo, of all up to it.
    std::uint64_t bytes_posted = 0, bytes_signaled = 0, bytes_done = 0;
    std::vector<std::uint64_t> bytes_until;
    std::vector<ibv_recv_wr> receive_batch;
    // Being put together.
    std::array<ibv_send_wr, kMostWrites> writes;
    std::array<ibv_sge, kMostWrites> parts;
    std::size_t count = 0;
    std::uint64_t bytes = 0;  // The last payload's, for messages.
  };
  struct Landing {
    Target target;
    std::uint64_t offset;
    std::uint32_t local_key;
    std::uint64_t remote_address;
    std::uint32_t remote_key;
  };

  void completed(const Ticket& ticket, const ibv_wc& completion) override;
  void broken(const ibv_qp* pair, const std::string& what) override;

  bool post();
  bool room(const QueuePair& at, std::size_t records_kept, std::size_t writes) const;
  Landing landing(net::Piece payload) const;
  void put(const Frame& frame, std::size_t pair);
  void put_record(std::size_t pair, Record record, std::span<const net::Piece> payload);
  ibv_send_wr& next_write(std::size_t pair, bool signaled);
  void hand_over();
  void say_consumed();
  void say_bye();
  Result<bool> deliver(net::FrameSink& sink);
  Result<bool> deliver_next(std::size_t pair, net::FrameSink& sink);
  Result<bool> take(const Record& record, const std::byte* payload, net::FrameSink& sink);
  bool take_credits(const Record& record);
  bool post_receives(QueuePair& at);
  std::span<const std::byte> arrived_record(std::size_t pair, std::uint64_t count) const;
  bool peer_left() const;
  std::size_t pair_of(const Frame& frame) const;
  bool in_record(const Frame& frame) const;
  std::size_t writes_of(const Frame& frame) const;
  std::span<const std::byte> memory_of(Target target) const;
  std::uint32_t records_kept() const { return 2 * static_cast<std::uint32_t>(pairs_.size()); }
  void fail(std::string_view what);
  Error corrupt(std::string_view what) const;

  Device& device_;
  LinkParts parts_;
  std::vector<QueuePair> pairs_;
  std::vector<Frame> queue_;  // By count, modulo.
  std::uint64_t queued_ = 0, taken_ = 0;
  std::uint32_t expected_ = 0;  // Sequence of the next frame to be announced.
  bool bye_said_ = false;
  std::optional<Error> failure_;
  bool abandoned_ = false;
  // Signs of life.
  Clock::time_point asked_, heard_;
  std::uint64_t heard_count_ = 0;
};

}  // namespace tutti::verbs
