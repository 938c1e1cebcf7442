#include "transport/tcp/stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"

namespace tutti::tcp {
namespace {

// In one sendmsg.
constexpr std::size_t kMostParts = 64;
// In one progress(): the other connections are to have their turn.
constexpr int kMostCalls = 16;
constexpr const char* kSending = "sending";
constexpr const char* kReceiving = "receiving";

iovec part(Piece bytes) {
  // sendmsg takes non-const memory, and only reads it.
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};
}

}  // namespace

/// The pieces for one sendmsg.
struct Stream::Batch {
  std::array<iovec, kMostParts> parts{};
  std::size_t count = 0;
  std::size_t bytes = 0;

  bool full() const { return count + 1 + kMostPieces > parts.size(); }
  /// The part of `piece` that is behind the first `*skip` bytes.
  void add(Piece piece, std::size_t* skip) {
    const std::size_t skipped = std::min(*skip, piece.size());
    *skip -= skipped;
    if (skipped == piece.size()) return;
    parts[count++] = part(piece.subspan(skipped));
    bytes += piece.size() - skipped;
  }
};

Stream::Stream(Connection connection) : connection_(std::move(connection)) {}

void Stream::send(FrameHeader header, std::span<const Piece> pieces) {
  TUTTI_CHECK(pending() < kMostQueued && pieces.size() <= kMostPieces &&
              header.bytes <= kMostFrameBytes);
  if (pending() == 0) queued_ = released_ = 0;
  Frame& one = *new (&frame(queued_++)) Frame;
  one.header = header;
  std::ranges::copy(encode(header), one.head.begin());
  one.head_bytes = kHeaderBytes;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].size();
    if (header.bytes > kCopiedBytes) {
      one.pieces[i] = pieces[i];
      continue;
    }
    TUTTI_CHECK(bytes <= kCopiedBytes);
    std::ranges::copy(pieces[i], one.head.begin() + static_cast<std::ptrdiff_t>(one.head_bytes));
    one.head_bytes += pieces[i].size();
  }
  TUTTI_CHECK(bytes == header.bytes);
  unsent_bytes_ += one.size();
}

void Stream::moved(Piece from, std::byte* to) {
  const auto inside = [&](const std::byte* at) {
    return at >= from.data() && at < from.data() + from.size();
  };
  for (std::uint64_t number = released_; number != queued_; ++number) {
    for (Piece& piece : frame(number).pieces) {
      if (inside(piece.data())) piece = {to + (piece.data() - from.data()), piece.size()};
    }
  }
  if (!target_ || !inside(*target_)) return;
  std::byte* const target = to + (*target_ - from.data());
  std::copy_n(*target_, received_, target);
  target_ = target;
}

Result<bool> Stream::progress(FrameSink& sink) {
  TUTTI_TRY(const bool sent, flush());
  TUTTI_TRY(const bool received, receive(sink));
  if (!sent && !received && send_error_ != 0) return broken(connection_, kSending, send_error_);
  return sent || received;
}

// Whether it works, and the end.

std::optional<Error> Stream::stuck() {
  // Repeated so often without an answer: 0.2 s after the first time, then always after twice as
  // long. A peer that answers but takes nothing is asked by probes, which are not counted here.
  constexpr int kMostRepeats = 4;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      info.tcpi_retransmits < kMostRepeats)
    return std::nullopt;
  return Error{
      Code::kPeerFailed,
      fmt::format("{}: no answer, though it was sent {} times", where(), info.tcpi_retransmits + 1),
      Rank{}, Rank{connection_.peer}};
}

std::optional<Error> Stream::vanished() {
  // Its system answers what is sent, and probes of a silent or full connection, whatever the
  // process does. So many were not answered:
  constexpr int kLeast = 3;
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (connection_.host_timeout_ms == 0 ||
      getsockopt(descriptor(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
    return std::nullopt;
  const bool asked = std::max(info.tcpi_retransmits, info.tcpi_probes) >= kLeast;
  const auto limit_ms = static_cast<unsigned>(connection_.host_timeout_ms);
  if (!asked || info.tcpi_last_ack_recv < limit_ms) return std::nullopt;
  return tcp::vanished(connection_);
}

void Stream::leave() { ::shutdown(descriptor(), SHUT_WR); }

bool Stream::left() {
  std::array<std::byte, 4096> rest;
  ssize_t got = 0;
  do {
    got = ::recv(descriptor(), rest.data(), rest.size(), MSG_DONTWAIT);
  } while (got > 0);
  if (got == 0 || errno != EAGAIN) return true;
  return unacknowledged() <= 1;  // The end of the stream counts as one byte.
}

/// Bytes that the peer's system has not acknowledged; 0 if that is not known.
int Stream::unacknowledged() const {
  int bytes = 0;
  return ::ioctl(descriptor(), SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

// Sending.

Result<bool> Stream::flush() {
  bool moved = false, more = send_error_ == 0;
  for (int i = 0; more && released_ != queued_ && i < kMostCalls; ++i) {
    TUTTI_TRY(const bool sent, send_batch(&more));
    moved |= sent;
  }
  return moved;
}

Result<bool> Stream::send_batch(bool* more) {
  Batch batch;
  for (std::uint64_t number = released_; number != queued_ && !batch.full(); ++number) {
    const Frame& one = frame(number);
    std::size_t skip = one.sent;
    batch.add(std::span(one.head).first(one.head_bytes), &skip);
    for (const Piece piece : one.pieces) batch.add(piece, &skip);
  }
  msghdr message{};
  message.msg_iov = batch.parts.data();
  message.msg_iovlen = batch.count;
  ssize_t count = 0;
  if (batch.count == 1)  // As good as always, where latency counts.
    count = ::send(descriptor(), batch.parts[0].iov_base, batch.bytes, MSG_NOSIGNAL);
  else
    count = ::sendmsg(descriptor(), &message, MSG_NOSIGNAL);
  if (count < 0) {
    *more = errno == EINTR;
    if (errno == EINTR || errno == EAGAIN) return false;
    if (errno != EPIPE && errno != ECONNRESET) return broken(connection_, kSending, errno);
    // The peer's end is closed. Bytes that it sent before, its farewell too, may lie here unread.
    send_error_ = errno;
    return false;
  }
  auto left = static_cast<std::size_t>(count);
  unsent_bytes_ -= left;
  *more = left == batch.bytes;
  while (left != 0) {
    Frame& one = frame(released_);
    const std::size_t part = std::min(left, one.size() - one.sent);
    one.sent += part;
    left -= part;
    if (one.sent == one.size()) ++released_;
  }
  return true;
}

// Receiving.

Result<bool> Stream::receive(FrameSink& sink) {
  bool moved = false;
  for (int i = 0; i < kMostCalls; ++i) {
    TUTTI_RETURN_IF_ERROR(use_staged(sink, &moved));
    // The sink has no place for now: leave the rest to the kernel, which then slows the sender.
    if (current_ && !target_) break;
    bool more = false;
    TUTTI_TRY(const bool read, read_socket(&more));
    moved |= read;
    if (!more) {
      if (read) TUTTI_RETURN_IF_ERROR(use_staged(sink, &moved));
      break;
    }
  }
  return moved;
}

Result<bool> Stream::read_socket(bool* more) {
  // The staged bytes are the beginning of a header, if there are any.
  std::memmove(staging_.data(), staging_.data() + used_, staged_ - used_);
  staged_ -= used_;
  used_ = 0;
  const auto rest = std::span(staging_).subspan(staged_);
  std::size_t direct = 0;
  ssize_t got = 0;
  if (current_) {
    direct = current_->bytes - received_;
    std::array<iovec, 2> parts{{{*target_ + received_, direct}, {rest.data(), rest.size()}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    got = ::recvmsg(descriptor(), &message, 0);
  } else {
    got = ::recv(descriptor(), rest.data(), rest.size(), 0);
  }
  if (got == 0) return closed(connection_, kReceiving);
  if (got < 0) {
    *more = errno == EINTR;
    if (errno == EINTR || errno == EAGAIN) return false;
    return broken(connection_, kReceiving, errno);
  }
  const auto bytes = static_cast<std::size_t>(got);
  received_ += std::min(bytes, direct);
  staged_ += bytes - std::min(bytes, direct);
  // Less than there was room for: the socket is empty, and asking again would only say so.
  *more = bytes == direct + rest.size();
  return true;
}

Status Stream::use_staged(FrameSink& sink, bool* moved) {
  for (;;) {
    if (!current_) {
      if (staged_ - used_ < kHeaderBytes) return ok();
      TUTTI_RETURN_IF_ERROR(begin_frame());
    }
    if (!target_) {
      TUTTI_TRY(target_, sink.place(*current_));
      if (!target_) return ok();
    }
    const std::size_t part = std::min(current_->bytes - received_, staged_ - used_);
    if (part != 0) std::memcpy(*target_ + received_, staging_.data() + used_, part);
    used_ += part;
    received_ += part;
    if (received_ != current_->bytes) return ok();
    const FrameHeader header = *std::exchange(current_, std::nullopt);
    target_.reset();
    *moved = true;
    TUTTI_RETURN_IF_ERROR(sink.arrived(header));
  }
}

Status Stream::begin_frame() {
  const auto header =
      parse_header(std::span<const std::byte, kHeaderBytes>(staging_.data() + used_, kHeaderBytes));
  if (!header) {
    return Error{Code::kPeerFailed,
                 "tcp: " + connection_.where + ": what came is no frame: the stream is corrupt",
                 Rank{}, Rank{connection_.peer}};
  }
  used_ += kHeaderBytes;
  current_ = *header;
  received_ = 0;
  return ok();
}

}  // namespace tutti::tcp
