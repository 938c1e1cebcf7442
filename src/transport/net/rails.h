// File: transport/net/rails.h: several carriers to one peer, used as one, and on without those that
// fail, until these are back.
//
// Each frame travels whole on one rail: short ones on the first, long ones on the one that has
// least to send. Payloads overtake each other, but are announced (`arrived`) in the order in which
// they were sent, which every frame says (FrameHeader::order). Every frame also says how many the
// sender acknowledges: those that were announced without a gap. Where nothing goes back, a frame of
// its own acknowledges them (kAcknowledge).
//
// Frames that the peer has not acknowledged are kept: headers and short payloads as copies, long
// payloads and those in GPUDirect slots where they are. Their memory belongs to the link
// (net/replicator.h): a slot is not written again before its reader has read, and so acknowledged,
// it; a zero-copy payload is copied there when its call ends (Carrier::held). When a rail fails,
// its carrier is abandoned, and a frame over another rail reports it (kLost). The peer abandons its
// end as well, forgets the frames that came by it and could not be announced yet, and confirms the
// loss with its acknowledgement (kConfirmLost). Then all unacknowledged frames of the lost rail are
// sent again, before anything new. So no frame arrives twice. A device may write late; nothing of a
// lost rail is written into memory that has been used again. A frame that had come in part is
// placed once more, from its beginning. An abort does not wait for a confirmation that may never
// come (kAhead): it leaves at once over the next rail, and again if that is lost as well.
//
// Once both have confirmed the loss, a lost rail may be taken again, if somebody makes its carrier
// anew (Renewal). Both count how often that happened, so that frames of an earlier time are known
// as old. One side may have it sooner, and lose it before the other side has it: then the other one
// counts it and confirms the loss, and whatever it had begun is begun once more. A renewal may send
// messages to the peer's renewal over a rail that lives (kRenewal). They are not kept and not sent
// again, so a renewal repeats a request that has no response.
//
// Some frames take turns in one place (FrameSink::takes_turns). One that comes before its turn
// waits on the shelf: in its connection it would hold up the frames behind it, also the message
// that the frame before it was lost with another rail, and is to be sent again.
//
// With a single rail left, that rail's own error is the error of all.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/net/network.h"

namespace tutti::net {

/// Makes carriers anew that one peer's rails have lost. Never waits.
class Renewal {
 public:
  static constexpr std::size_t kMostMessageBytes = 128;

  virtual ~Renewal() = default;
  /// Now and then, for a rail that both sides have given up: what takes its place, once it works.
  virtual std::unique_ptr<Carrier> renew(std::size_t rail) = 0;
  /// The peer has given up what renew() was to bring: all begins anew.
  virtual void drop(std::size_t rail) = 0;
  /// After a renew() that brought nothing: the next message about that rail to the peer's renewal.
  /// Returns how many bytes it has; 0: there is none. The message may be lost.
  virtual std::size_t next_message(std::size_t /*rail*/,
                                   std::span<std::byte, kMostMessageBytes> /*into*/) {
    return 0;
  }
  /// Takes a message of the peer's renewal about a rail that both sides have given up. False: no
  /// renewal sends such a message.
  virtual bool take_message(std::size_t /*rail*/, std::span<const std::byte> /*bytes*/) {
    return false;
  }
};

/// It has more than 20 functions and 15 fields: sending, receiving and losing a rail share the
/// frames' order.
class Rails final : public Carrier {
 public:
  static constexpr std::size_t kSpreadBytes = std::size_t{64} << 10;
  /// Payloads of so many are kept as copies, if they don't lie apart.
  static constexpr std::size_t kKeptBytes = 952;

  /// To one peer, in the same order on both sides; at least one. Payloads from `spread_bytes` on
  /// are spread over them; shorter ones go by `first`, which either side chooses.
  /// Without a renewal what is lost stays lost.
  explicit Rails(std::vector<std::unique_ptr<Carrier>> carriers,
                 std::size_t spread_bytes = kSpreadBytes, std::size_t first = 0,
                 std::unique_ptr<Renewal> renewal = nullptr);

  void send(FrameHeader header, std::span<const Piece> pieces) override;
  using Carrier::send;
  void send_ahead(const FrameHeader& header, Piece payload) override;
  Result<bool> progress(FrameSink& sink) override;
  Result<bool> flush() override;
  bool any_memory() const override {
    return std::ranges::all_of(rails_, [](const Rail& one) { return one.carrier->any_memory(); });
  }
  bool gpudirect(Piece payload) const override {
    return rails_[first_].carrier->gpudirect(payload);
  }
  void moved(Piece from, std::byte* to) override;
  std::size_t pending() const override;
  std::size_t held() const override { return static_cast<std::size_t>(queued_ - acked_); }
  std::string where() const override { return rails_[first_].carrier->where(); }
  /// With one rail left. Others take over before that.
  std::optional<Error> vanished() override {
    return alive() == 1 ? rails_[first_].carrier->vanished() : std::nullopt;
  }
  void leave() override;
  bool left() override;
  bool delivering() override;
  /// How many have not failed.
  std::size_t alive() const { return rails_.size() - lost_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Rail {
    std::unique_ptr<Carrier> carrier;
    std::optional<Error> failure;
    std::uint64_t given = 0;  // Frames.
    bool busy = false;        // Something moved there the last time.
    bool reported = false;    // People have been told of the failure.
    bool settled = false;     // The peer has confirmed it.
    std::uint32_t times = 0;  // That it was taken again.
  };
  /// A frame that the peer has not acknowledged.
  struct Kept {
    FrameHeader header;
    std::array<std::byte, kKeptBytes> copy;
    std::array<Piece, kMostPieces> pieces;
    std::size_t count = 0;     // Pieces.
    std::size_t rail = 0;      // That it was given to last,
    std::uint64_t ticket = 0;  // and as which of its frames;
    bool waits = false;        // or not yet: for room, or to be sent again.
  };
  /// A frame that is not announced yet: one that is coming, or has come before its turn.
  struct Early {
    FrameHeader header{};  // Once it has come; kind 0 before.
    std::size_t rail = 0;
    bool placed = false;   // Its payload has a place, and comes there by that rail or has come.
    bool shelved = false;  // That place is on the shelf.
  };
  /// Messages between renewals. They stay in place when a rail is replaced.
  struct Messages {
    std::array<std::byte, Renewal::kMostMessageBytes> received;  // Over this rail;
    std::array<std::byte, Renewal::kMostMessageBytes> sent;      // about this rail, sent
    std::size_t over = 0;                                        // over that one
    std::uint32_t over_times = 0;                                // in its latest life
    std::uint64_t ticket = 0;                                    // as this frame,
    bool any = false;                                            // if there was one.
  };
  /// Stands between a rail and the sink of frames.
  class Inlet final : public FrameSink {
   public:
    Inlet(Rails& rails, FrameSink& sink, std::size_t rail)
        : rails_(rails), sink_(sink), rail_(rail) {}
    Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
      auto to = rails_.place(header, sink_, rail_);
      refused_ = refused_ || !to;
      return to;
    }
    Status arrived(const FrameHeader& header) override {
      auto done = rails_.arrived(header, sink_, rail_);
      refused_ = refused_ || !done;
      return done;
    }
    /// A frame made no sense: another rail would not help.
    bool refused() const { return refused_; }

   private:
    Rails& rails_;
    FrameSink& sink_;
    std::size_t rail_;
    bool refused_ = false;
  };

  Kept& kept(std::uint64_t number) { return kept_[number % kMostQueued]; }
  std::size_t pick(std::size_t bytes) const;
  std::uint32_t advertise();
  void give(Kept& frame, std::size_t rail);
  void give_waiting();
  Status send_control(std::size_t rail, std::uint16_t kind, std::size_t about);
  void give_ahead();
  bool has_left(const Kept& frame) const;
  void settle();
  Early& early(const FrameHeader& header) { return early_[header.order % kMostQueued]; }
  Status check_order(const FrameHeader& header) const;
  std::byte* shelf(const FrameHeader& header) const {
    return shelf_.get() + header.order % kMostQueued * kKeptBytes;
  }
  Result<std::optional<std::byte*>> place(const FrameHeader& header, FrameSink& sink,
                                          std::size_t rail);
  Status arrived(const FrameHeader& header, FrameSink& sink, std::size_t rail);
  Status announce(const FrameHeader& header, FrameSink& sink);
  Status acknowledge(std::uint32_t acked);
  Status take_own(const FrameHeader& header, std::size_t rail);
  Status take_renewal_message(const FrameHeader& header, std::size_t rail);
  void forget_early(std::size_t rail);
  void send_again(std::size_t rail);
  /// Goes on without that rail; an error if it was the last one.
  Status lose(std::size_t rail, Error why);
  Status look_for_stuck();
  void renew();
  void send_renewal_message(std::size_t about);
  Error corrupt(std::string_view what) const;

  std::vector<Rail> rails_;
  std::size_t spread_bytes_;
  std::size_t first_;  // That short frames go by; it has not failed.
  std::size_t lost_ = 0, unsettled_ = 0;
  std::unique_ptr<Renewal> renewal_;
  std::vector<Messages> messages_;  // By rail; empty without a renewal.
  std::vector<Kept> kept_;          // By count, modulo.
  std::uint64_t queued_ = 0, released_ = 0, acked_ = 0;
  bool any_waits_ = false;  // Among the kept frames.
  std::optional<std::pair<FrameHeader, Piece>> ahead_;
  // Receiving.
  std::uint32_t expected_ = 0;      // Order of the next frame to be announced.
  std::uint32_t advertised_ = 0;    // That the peer knows of.
  bool long_unadvertised_ = false;  // Among what it does not know of is a long frame.
  std::vector<Early> early_;        // By order, modulo;
  // and payloads that wait for their turn, kKeptBytes each. Null: a single rail keeps the order.
  std::unique_ptr<std::byte[]> shelf_;
  std::byte nothing_{};  // Where frames without payload go.
  std::size_t looks_ = 0;
  std::int64_t next_tick_ = 0;  // Milliseconds of the coarse clock.
};

}  // namespace tutti::net
