// File: transport/tcp/stream.h: one connection as a queue of frames in each direction.
//
// Sending: frames are queued with pointers to their payload, and gathered from there by sendmsg, as
// many at a time as the socket takes. Payloads of up to kCopiedBytes are copied into the queue,
// behind their header, so that a small frame is one piece of memory; memory of longer ones must
// stay as it is until the frame is released, which is once the kernel has it all: it copies
// (docs/decisions/0033-sends-are-copied.md).
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
#include <memory>
#include <optional>
#include <span>

#include "base/fork.h"
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

/// It has more than 20 functions: a carrier's interface, and the steps of sending and receiving.
class Stream final : public net::Carrier {
 public:
  static constexpr std::size_t kCopiedBytes = 128;  // A call's line, with its record.
  static constexpr std::size_t kStagingBytes = 4096;

  explicit Stream(Connection connection);

  void send(FrameHeader header, std::span<const Piece> pieces) override;
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override;
  Result<bool> flush() override;
  bool any_memory() const override { return true; }
  void moved(Piece from, std::byte* to) override;
  std::string where() const override { return "tcp: " + connection_.where; }
  std::optional<Error> stuck() override;
  std::optional<Error> vanished() override;
  void abandon() override { connection_.socket.reset(); }
  void leave() override;
  /// A close with unread bytes, or before bytes that come later, would cut off what was sent last;
  /// so it has to be acknowledged first, or the peer has to have left as well: then it got all that
  /// it wanted.
  bool left() override;
  bool delivering() override { return unacknowledged() > 0 && !stuck(); }

  std::size_t pending() const override { return static_cast<std::size_t>(queued_ - released_); }
  std::size_t unsent_bytes() const override { return unsent_bytes_; }
  /// For poll: whether it is worth to wait until the socket takes more.
  bool blocked() const { return pending() != 0; }
  int descriptor() const { return connection_.socket.get(); }  // -1: abandoned.
  const Connection& connection() const { return connection_; }

 private:
  struct Frame {
    FrameHeader header;
    std::array<std::byte, kHeaderBytes + kCopiedBytes> head;  // And a short payload.
    std::size_t head_bytes = 0;
    std::array<Piece, kMostPieces> pieces{};  // A long payload's.
    std::size_t sent = 0;                     // Bytes of all that.
    std::size_t size() const { return kHeaderBytes + header.bytes; }
  };
  struct Batch;
  /// A frame, or nothing yet: memory that no frame has used is never touched.
  union Place {
    Place() {}  // NOLINT(modernize-use-equals-default): that would be deleted.
    Frame frame;
  };

  Frame& frame(std::uint64_t number) { return frames_[number % kMostQueued].frame; }
  const Frame& frame(std::uint64_t number) const { return frames_[number % kMostQueued].frame; }

  int unacknowledged() const;
  Result<bool> send_batch(bool* more);

  Result<bool> receive(FrameSink& sink);
  Result<bool> read_socket(bool* more);
  Status use_staged(FrameSink& sink, bool* moved);
  Status begin_frame();

  Connection connection_;
  ClosedInChild closed_in_child_{connection_.socket};

  // A ring: those from released_ to queued_ are under way. An empty one begins again at its start,
  // so a connection whose queue is short touches few pages.
  std::unique_ptr<Place[]> frames_ = std::make_unique_for_overwrite<Place[]>(kMostQueued);
  std::uint64_t queued_ = 0, released_ = 0;
  std::size_t unsent_bytes_ = 0;
  int send_error_ = 0;  // The peer takes nothing any more; what it sent before may still come.

  std::array<std::byte, kStagingBytes> staging_{};
  std::size_t staged_ = 0, used_ = 0;   // Bytes in the buffer, and how many of them are used.
  std::optional<FrameHeader> current_;  // The header whose payload comes next.
  std::optional<std::byte*> target_;    // Where it goes, once the sink has said so.
  std::size_t received_ = 0;            // Bytes of its payload.
};

}  // namespace tutti::tcp
