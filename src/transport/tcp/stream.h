// File: transport/tcp/stream.h: one connection as a queue of frames in each direction.
//
// Sending: frames are queued with pointers to their payload, and gathered from there by sendmsg, as
// many at a time as the socket takes. Payloads of up to kCopiedBytes are copied into the queue,
// behind their header, so that a small frame is one piece of memory; memory of longer ones must
// stay as it is until the frame is released, which happens in order. From `zero_copy_bytes` on the
// kernel may send right from that memory (MSG_ZEROCOPY); then a frame is released when the kernel
// says that it is done. If it says that it copied all the same (veth, loopback, NICs that can't
// gather), asking for it only costs, so this connection stops asking.
//
// Receiving: what comes goes into the memory that the sink names for a header. A small staging
// buffer takes headers and what follows them, so that a burst of small frames costs one recv; the
// rest of a long payload is received right where it belongs, together with the next header.
//
// Nothing blocks, and nothing allocates after construction. Not thread-safe.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/net/network.h"
#include "transport/tcp/connection.h"

namespace tutti::tcp {

using net::FrameHeader;
using net::FrameSink;
using net::kHeaderBytes;
using net::kMostFrameBytes;
using net::kMostPieces;
using net::parse_header;
using net::Piece;

class Stream final : public net::Carrier {
 public:
  static constexpr std::size_t kCopiedBytes = 128;  // A call's line, with its record.
  static constexpr std::size_t kStagingBytes = 4096;

  /// `zero_copy_bytes` 0: never ask for it.
  explicit Stream(Connection connection, std::size_t zero_copy_bytes = 0);

  void send(FrameHeader header, std::span<const Piece> pieces) override;
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override;
  Result<bool> flush() override;
  bool any_memory() const override { return true; }
  void moved(Piece from, std::byte* to) override;
  std::string where() const override { return "tcp: " + connection_.where; }
  std::optional<Error> stuck() override;
  void abandon() override { connection_.socket.reset(); }
  void leave() override;
  /// A close with unread bytes, or before bytes that come later, would cut off what was sent last;
  /// so it has to be acknowledged first, or the peer has to have left as well: then it got all that
  /// it wanted.
  bool left() override;

  /// Frames queued and released since the beginning; between them are those whose memory is in use.
  std::uint64_t queued() const { return queued_; }
  std::uint64_t released() const { return released_; }
  std::size_t pending() const override { return static_cast<std::size_t>(queued_ - released_); }
  std::size_t unsent_bytes() const override { return unsent_bytes_; }
  /// For poll: whether it is worth to wait until the socket takes more.
  bool blocked() const { return flushed_ != queued_; }
  int descriptor() const { return connection_.socket.get(); }  // -1: abandoned.
  const Connection& connection() const { return connection_; }
  bool asks_zero_copy() const { return zero_copy_bytes_ != 0; }
  std::uint64_t zero_copies() const { return zero_copies_; }

 private:
  struct Frame {
    FrameHeader header;
    std::array<std::byte, kHeaderBytes + kCopiedBytes> head{};  // And a short payload.
    std::size_t head_bytes = 0;
    std::array<Piece, kMostPieces> pieces{};  // Of a long one.
    std::size_t sent = 0;                     // Of all that.
    /// One past the last zero-copy send that this frame was part of; 0: none.
    std::uint64_t zero_copy_end = 0;
    std::size_t size() const { return kHeaderBytes + header.bytes; }
  };
  struct Batch;

  Frame& frame(std::uint64_t number) { return frames_[number % kMostQueued]; }
  const Frame& frame(std::uint64_t number) const { return frames_[number % kMostQueued]; }

  Result<bool> send_batch(bool* more);
  Status read_completions();
  void complete(std::uint32_t first, std::uint32_t last, bool copied);
  void release();

  Result<bool> receive(FrameSink& sink);
  Result<bool> read_socket(bool* more);
  Status use_staged(FrameSink& sink, bool* moved);
  Status begin_frame();

  Connection connection_;
  std::size_t zero_copy_bytes_;

  std::vector<Frame> frames_;  // A ring: released_ <= flushed_ <= queued_.
  std::uint64_t queued_ = 0, flushed_ = 0, released_ = 0;
  std::size_t unsent_bytes_ = 0;
  std::uint64_t zero_copies_ = 0, zero_copies_done_ = 0;  // Sends asked for, and through, in order.
  /// Completions that came before earlier ones.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> early_;

  std::array<std::byte, kStagingBytes> staging_{};
  std::size_t staged_ = 0, used_ = 0;   // What is in there, and how much of it is used.
  std::optional<FrameHeader> current_;  // Whose payload comes next.
  std::optional<std::byte*> target_;    // Where it goes, once the sink has said so.
  std::size_t received_ = 0;            // Of its payload.
};

}  // namespace tutti::tcp
