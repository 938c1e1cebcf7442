// File: transport/ucx/carrier.h: frames to and from one peer as active messages of UCX.
//
// A frame is one active message (message.h); UCX sends it as it comes or, if it is long, by a
// rendezvous: then the receiver fetches it to where it belongs. Messages come in any order. Each
// has a place in a window, by its sequence; they get their destination in order of sequence, and
// are announced in that order once they are there.
//
//   in_:  ... | announced < expected_ | placed, perhaps still coming < placed_ | come | ...
//
// A sender has at most kMostQueued frames that are not released, and releases in order; so a frame
// that is further ahead than the window is no frame of a sound peer.
//
// UCX calls back from Worker::progress(). A frame that comes in its turn, as nearly all do, goes
// from UCX's buffer to its destination there and then; any other is noted, and put aside if UCX
// does not keep it. Only that allocates after construction; UCX's requests are from its own pools.
//
// Payloads may lie in any memory of this process. To take back memory that UCX still has (`moved`)
// means to wait a little for it to go, and then to end the connection: UCX can't be told otherwise.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/net/network.h"
#include "transport/ucx/message.h"
#include "transport/ucx/worker.h"

namespace tutti::ucx {

/// The facts that a carrier needs about both ends.
struct Ends {
  int me = 0, peer = 0;
  std::string peer_name;  // "rank 3 (node7)".
  Key peer_key{};
};

/// It has more than 20 functions and 15 fields: a carrier's interface, and windows in both
/// directions.
class UcxCarrier final : public net::Carrier {
 public:
  /// Not to be used before `connect`. UCX may call back until the worker is gone: it has to stay
  /// until then.
  UcxCarrier(Worker& worker, Ends ends);
  UcxCarrier(const UcxCarrier&) = delete;
  UcxCarrier& operator=(const UcxCarrier&) = delete;

  /// Says hello, in the background. kSystem: UCX finds no way to that address.
  Status connect(std::span<const std::byte> address);
  /// Ends the connection, whatever is under way. The worker has to be there.
  void close();
  /// No sink is told of anything any more.
  void forget() { sink_ = nullptr; }
  /// The peer has said hello. Then UCX knows the way, and `settle` notes which it took.
  bool met() const { return met_; }
  void settle();

  /// A message of the peer; what UCX wants to be answered: whether `data` is kept for later.
  /// `attributes`: UCX's, of what it received.
  ucs_status_t take(const Message& message, void* data, std::uint64_t attributes);
  /// There is something for progress() to do.
  bool stirred() const {
    return moved_ || status_ != UCS_OK || in_[placed_ % kWindow].stage == Stage::kCome;
  }

  void send(net::FrameHeader header, std::span<const net::Piece> pieces) override;
  using Carrier::send;
  /// `sink` may be used until the next call or `forget`, whenever the worker makes progress.
  Result<bool> progress(net::FrameSink& sink) override;
  /// Not over ways that can't be ended at will.
  bool any_memory() const override { return watched_; }
  void moved(net::Piece from, std::byte* to) override;
  std::size_t pending() const override { return static_cast<std::size_t>(queued_ - released_); }
  std::string where() const override;
  void leave() override;
  /// Sent: what UCX has handed on. The other side has to have said goodbye as well, or to have
  /// broken the connection: then it got all that it wanted.
  bool left() override;
  /// The error that broke the connection.
  std::optional<Error> failure() const;

 private:
  static constexpr std::size_t kWindow = 4 * kMostQueued;

  struct Outgoing {
    UcxCarrier* carrier = nullptr;
    MessageBytes message{};
    std::array<ucp_dt_iov_t, net::kMostPieces> pieces{};
    std::size_t count = 0;  // Pieces.
    bool done = false;
  };
  enum class Stage { kAbsent, kCome, kFetching, kThere };
  struct Incoming {
    UcxCarrier* carrier = nullptr;
    Stage stage = Stage::kAbsent;
    What what = What::kFrame;
    net::FrameHeader header;
    void* data = nullptr;  // UCX's.
    bool rendezvous = false;
    std::vector<std::byte> aside;  // The payload, if UCX did not keep it.
    net::Piece fetched;            // Where it goes to.
  };

  void post(What what, net::FrameHeader header, std::span<const net::Piece> pieces);
  void on_sent(Outgoing& which, ucs_status_t status);
  void fail(ucs_status_t status, const char* doing);
  void drop(Incoming& which);
  void fetch(Incoming& which, std::byte* to);
  bool take_at_once(Incoming& which, const void* data);
  bool touches(net::Piece memory) const;
  Result<bool> place(net::FrameSink& sink);
  Result<bool> announce(net::FrameSink& sink);
  void say_bye();

  Worker& worker_;
  Ends ends_;
  ucp_ep_h endpoint_ = nullptr;
  bool watched_ = true;        // UCX tells when the peer is gone.
  std::string path_;           // "tcp/eth0".
  std::vector<Outgoing> out_;  // By sequence, modulo.
  std::uint64_t queued_ = 0, released_ = 0;
  std::vector<Incoming> in_;  // Likewise.
  std::uint32_t expected_ = 0, placed_ = 0;
  net::FrameSink* sink_ = nullptr;  // Null: none yet, or no more.
  std::optional<Error> refused_;    // Its error about a frame.
  std::optional<MessageBytes> hello_;
  bool starved_ = false;  // There was no memory for a frame, and progress did not say so.
  bool met_ = false, moved_ = false;
  bool closed_ = false, leaving_ = false, bye_said_ = false, bye_heard_ = false;
  ucs_status_t status_ = UCS_OK;  // The error that broke the connection,
  const char* doing_ = "";        // and during what.
};

}  // namespace tutti::ucx
