// File: transport/net/replicator_peer.h: the frames that a replicator (net/replicator.h) exchanges
// with one other rank.
//
// Both sides keep the same lists of rings and counters in the same order; a frame names one of them
// by its index. Zero-copy sends are a list of frames that are still held, and by ring the slots
// that are not yet queued. One slot of each ring, the next, may be a zero-copy receive.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "transport/net/replicator.h"

namespace tutti::net {

/// A published call and the one before it, as they travel. It fills a cache line, so that the lines
/// behind it keep their alignment.
struct alignas(kCacheLine) CallImage {
  CallSeen call, before;
  std::uint32_t lines = 0;
  std::int32_t cpu = 0;  // As CallRecord's; only for ranks on the same machine.
};
/// Calls of a record, backwards from the number in the frame's header. A record takes several
/// frames, because a payload from the rank's own memory has to be short.
struct RecordImage {
  std::uint64_t blocked_on = 0;
  std::array<CallSeen, 32> calls{};
};
static_assert(sizeof(CallImage) == kCacheLine);
struct AbortImage {
  std::int32_t code = 0, rank = -1, peer = -1;
  std::array<char, kAbortText> text{};
};

static_assert(std::has_single_bit(Carrier::kMostQueued), "frames are counted modulo");

/// The exchange with one rank.
/// It has more than 20 functions and 15 fields: for each kind of frame one that sends it and one
/// that takes it.
class Replicator::Peer final : public FrameSink {
 public:
  Peer(Replicator& replicator, int rank, Carrier& carrier, bool on_machine);

  /// Queues what has changed; true if anything had.
  bool offer(const std::vector<Published>& published, std::uint64_t count);
  /// Moves what is queued; with `look` also what came.
  bool exchange(bool look);
  bool pending(std::uint64_t published_count) const;
  std::uint64_t taken() const { return released_; }
  void say_abort(const Error& error);
  void say_left(std::uint64_t left);
  void show_calls();
  Carrier& carrier() const { return carrier_; }

  // As RemoteLink's.
  bool allows_zero_copy() const { return carrier_.any_memory(); }
  void send_zero_copy(bool to_all, std::size_t lane, std::uint64_t position, SendBuffer data);
  bool is_sending(SendBuffer data) const;
  void expect(bool to_all, std::size_t lane, std::uint64_t position, std::span<std::byte> to);
  /// Nothing that has not begun to come may go where this is, which is to be sent first.
  void expect_not(SendBuffer data);
  const std::byte* placed(bool to_all, std::size_t lane, std::uint64_t position) const;
  void keep();

  std::optional<Error> failure;

 private:
  struct Sent {
    const std::atomic<std::uint64_t>* value;
    std::uint64_t may_lag = 0;  // So much of it a rank that leaves need not have sent.
    std::uint64_t last = 0;
  };
  struct Outgoing {
    Ring ring;
    std::uint64_t next = 0;
    std::vector<SendBuffer> zero_copy = {};  // By slot, from `next` on; empty: it is not.
  };
  /// A frame whose payload lies in the user's memory, and the slot that it stands for.
  struct ZeroCopySend {
    Piece zero_copy;
    std::byte* slot;  // Null: none.
  };
  struct Incoming {
    Ring ring;
    const Counter* tail;     // This rank's.
    bool gpudirect = false;  // Its slots are.
    // Where the slot at a position may go; and by slot where it went, null: into the slot.
    std::uint64_t expected = 0;
    std::span<std::byte> to = {};
    std::vector<std::byte*> placed = {};
    // That memory, since a frame was told to go there: until it has come, or has been sent
    // elsewhere. At most one frame has any of a ring's.
    std::uint64_t given_at = 0;
    std::span<std::byte> given = {};
  };

  bool full() const;
  void queue(const FrameHeader& header, std::span<const Piece> pieces,
             const ZeroCopySend& zero_copy_send = {{}, nullptr});
  void queue(const FrameHeader& header, Piece payload) { queue(header, std::span(&payload, 1)); }
  void offer_slot(std::size_t ring);
  bool offer_cpu();
  bool copy_note(std::size_t which);
  void offer_note(std::size_t which);
  void settle();
  void keep_zero_copy();
  /// Rings are in the order of the constructor.
  static std::size_t ring_of(bool to_all, std::size_t lane) {
    return 1 + 2 * lane + (to_all ? 1 : 0);
  }
  static std::byte* place_of_slot(Incoming& at, const FrameHeader& header);
  void take_back(Incoming& at);
  void offer_call(const Published& call);
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override;
  bool takes_turns(const FrameHeader& header) const override;
  std::byte* destination(const FrameHeader& header);
  Status arrived(const FrameHeader& header) override;
  Status take_lines(const FrameHeader& header);
  void take_calls(const FrameHeader& header);
  Status take_abort() const;
  Error nonsense(const FrameHeader& header) const;

  Replicator& replicator_;
  const Region& region_;
  int me_, rank_;
  Carrier& carrier_;
  bool on_machine_;
  std::int32_t said_cpu_ = 0;
  // The same lists in the same order on both sides.
  std::vector<Sent> counters_;
  std::vector<std::atomic<std::uint64_t>*> counters_in_;
  std::vector<Outgoing> rings_;
  std::vector<Incoming> rings_in_;
  std::uint64_t calls_ = 0;                  // Published calls that were queued.
  std::uint64_t queued_ = 0, released_ = 0;  // Frames; those that are held no longer.
  std::array<ZeroCopySend, Carrier::kMostQueued> zero_copy_sends_ =
      {};                            // By frame that is held; modulo.
  std::size_t zero_copy_count_ = 0;  // Frames, and slots to be queued.
  bool expects_ = false;             // Something, since `keep`.
  std::array<CallImage, kCalls> images_{};
  static constexpr std::size_t kParts = kCalls / std::tuple_size_v<decltype(RecordImage::calls)>;
  std::array<RecordImage, kParts> record_out_{};
  RecordImage record_in_;
  std::uint64_t record_queued_ = 0;  // `queued_` after the last frame of the record.
  /// A note that this rank writes and the same of the peer.
  struct Notes {
    const Note* mine;  // Null, as `theirs`: there is none.
    Note* theirs;
    NoteImage out{}, in{};
    std::uint64_t said = 0, queued = 0;  // Its version; `queued_` after the last frame.
  };
  std::array<Notes, 2> notes_;  // For this peer alone, and the board.
  // Where lines lie until they are complete.
  struct alignas(kCacheLine) Staged {
    CallImage image;
    std::array<std::byte, kCallLines * sizeof(CallLine)> lines{};
  } staged_;
  AbortImage abort_out_, abort_in_;
  // The kind and position of the frame that is arriving, of those kinds that arrive one at a time.
  std::optional<std::pair<std::uint16_t, std::uint64_t>> staging_;
};

}  // namespace tutti::net
