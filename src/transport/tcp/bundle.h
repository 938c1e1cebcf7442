// File: transport/tcp/bundle.h: the connections with one peer, used as one.
//
// Each frame travels whole on one connection: short ones on the first, long ones on the one that
// has least to send. So payloads overtake each other, but they are only announced (`arrived`) in
// the order in which they were sent: a frame that says "the data before me is complete" can rely on
// it. What came too early is held back, as headers; a connection that is too far ahead is not read
// meanwhile.
//
// Not thread-safe, nothing blocks, and nothing allocates after construction.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/net/network.h"
#include "transport/tcp/stream.h"

namespace tutti::tcp {

struct BundleOptions {
  /// Payloads from this size on are spread over the connections.
  std::size_t spread_bytes = std::size_t{64} << 10;
  /// Payloads from this size on are sent without copying them, if the kernel really can; 0: never.
  std::size_t zero_copy_bytes = 0;
};

class Bundle final : public net::Carrier, private FrameSink {
 public:
  /// Of one peer; at least one. All connections of both sides have to be in it, by index.
  explicit Bundle(std::vector<Connection> connections, const BundleOptions& options = {});

  /// Whether a frame of so many bytes can be queued now.
  bool room(std::size_t bytes) const { return streams_[pick(bytes)].room(); }
  void send(FrameHeader header, std::span<const Piece> pieces) override;
  using Carrier::send;
  Result<bool> progress(FrameSink& sink) override;
  Result<bool> flush() override;

  /// Frames queued since the beginning, and how many of them, from the first on, are released: the
  /// memory of their payloads is free again.
  std::uint64_t queued() const { return queued_; }
  std::uint64_t released() const;
  std::size_t pending() const override { return static_cast<std::size_t>(queued_ - released()); }
  bool any_memory() const override { return true; }
  void moved(Piece from, std::byte* to) override;
  std::string where() const override { return "tcp: " + streams_.front().connection().where; }
  void leave() override;
  /// A close with unread bytes, or before bytes that come later, would cut off what was sent last;
  /// so it has to be acknowledged first, or the peer has to have left as well: then it got all that
  /// it wanted.
  bool left() override;
  std::span<const Stream> streams() const { return streams_; }

 private:
  // How far a connection may be ahead of the slowest one, in frames.
  static constexpr std::uint32_t kMostAhead = 1024;

  std::size_t pick(std::size_t bytes) const;
  Error corrupt() const;
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override;
  Status arrived(const FrameHeader& header) override;

  BundleOptions options_;
  std::vector<Stream> streams_;
  std::vector<bool> busy_;  // By stream: something moved there the last time.
  std::size_t turn_ = 0;
  std::uint64_t queued_ = 0;
  std::uint32_t expected_ = 0;      // Sequence of the next frame to be announced.
  std::vector<FrameHeader> early_;  // By sequence, modulo; kind 0: not there.
  FrameSink* sink_ = nullptr;       // During progress.
};

}  // namespace tutti::tcp
