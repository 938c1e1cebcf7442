#include "transport/tcp/bundle.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tutti::tcp {

Bundle::Bundle(std::vector<Connection> connections, const BundleOptions& options)
    : options_(options), busy_(connections.size()), early_(kMostAhead) {
  TUTTI_CHECK(!connections.empty());
  streams_.reserve(connections.size());
  for (Connection& one : connections)
    streams_.emplace_back(std::move(one), options.zero_copy_bytes);
}

std::size_t Bundle::pick(std::size_t bytes) const {
  if (bytes < options_.spread_bytes) return 0;
  const auto least = std::min_element(
      streams_.begin(), streams_.end(),
      [](const Stream& a, const Stream& b) { return a.unsent_bytes() < b.unsent_bytes(); });
  return static_cast<std::size_t>(least - streams_.begin());
}

void Bundle::send(FrameHeader header, std::span<const Piece> pieces) {
  header.sequence = static_cast<std::uint32_t>(queued_++);
  streams_[pick(header.bytes)].send(header, pieces);
}

std::uint64_t Bundle::released() const {
  std::uint64_t first = queued_;
  for (const Stream& one : streams_) {
    if (one.pending() == 0) continue;
    // Sequences are the lower half of the count; no more is under way than the queues hold.
    const auto behind = static_cast<std::uint32_t>(queued_) - one.first_pending();
    first = std::min(first, queued_ - behind);
  }
  return first;
}

Result<bool> Bundle::progress(FrameSink& sink) {
  sink_ = &sink;
  bool moved = false;
  turn_ = turn_ + 1 < streams_.size() ? turn_ + 1 : 0;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    // A look at a silent connection is a system call: those besides the first get one in turn.
    if (i != 0 && i != turn_ && !busy_[i] && streams_[i].pending() == 0) continue;
    TUTTI_TRY(busy_[i], streams_[i].progress(*this));
    moved |= busy_[i];
  }
  return moved;
}

Result<bool> Bundle::flush() {
  bool moved = false;
  for (Stream& stream : streams_) {
    if (stream.pending() == 0) continue;
    TUTTI_TRY(const bool sent, stream.flush());
    moved |= sent;
  }
  return moved;
}

void Bundle::moved(Piece from, std::byte* to) {
  for (Stream& stream : streams_) stream.moved(from, to);
}

void Bundle::leave() {
  for (const Stream& stream : streams_) ::shutdown(stream.descriptor(), SHUT_WR);
}

bool Bundle::left() {
  return std::all_of(streams_.begin(), streams_.end(), [](const Stream& stream) {
    std::array<std::byte, 4096> rest;
    ssize_t got = 0;
    do {
      got = ::recv(stream.descriptor(), rest.data(), rest.size(), MSG_DONTWAIT);
    } while (got > 0);
    if (got == 0 || errno != EAGAIN) return true;
    int unsent = 0;  // The end of the stream counts as a byte.
    return ::ioctl(stream.descriptor(), SIOCOUTQ, &unsent) != 0 || unsent <= 1;
  });
}

Error Bundle::corrupt() const {
  return {Code::kPeerFailed, where() + ": a frame came twice: the stream is corrupt", Rank{},
          Rank{streams_.front().connection().peer}};
}

Result<std::optional<std::byte*>> Bundle::place(const FrameHeader& header) {
  const std::uint32_t ahead = header.sequence - expected_;
  if (ahead > std::numeric_limits<std::uint32_t>::max() / 2) return corrupt();
  if (ahead >= kMostAhead) return std::optional<std::byte*>{};
  return sink_->place(header);
}

Status Bundle::arrived(const FrameHeader& header) {
  if (header.sequence != expected_) {
    FrameHeader& held = early_[header.sequence % kMostAhead];
    if (held.kind != 0) return corrupt();
    held = header;
    return ok();
  }
  ++expected_;
  TUTTI_CHECK_OK(sink_->arrived(header));
  for (;;) {
    FrameHeader& next = early_[expected_ % kMostAhead];
    if (next.kind == 0) return ok();
    const FrameHeader held = std::exchange(next, FrameHeader{});
    ++expected_;
    TUTTI_CHECK_OK(sink_->arrived(held));
  }
}

}  // namespace tutti::tcp
