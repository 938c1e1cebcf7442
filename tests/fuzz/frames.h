// File: fuzz/frames.h: frames as the input of a fuzz target, and carriers that deliver them.
//
// An input is a byte that chooses what is done with the frames, then the frames one after another:
// a byte for the target's own use, the header (net/frame.h), the payload. What an input lacks of a
// payload reads as zeros; what is no header ends it, as it ends a connection.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/network.h"

namespace tutti::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

/// One frame of an input. The payload may be shorter than the header says.
struct Frame {
  std::uint8_t mark = 0;
  net::FrameHeader header;
  std::span<const std::byte> payload;
};

/// The frames of an input, in order.
class Frames {
 public:
  explicit Frames(std::span<const std::byte> bytes) : rest_(bytes) { next(); }
  /// Null: there are no more.
  const Frame* front() const { return front_ ? &*front_ : nullptr; }
  std::size_t taken() const { return taken_; }
  void next() {
    if (front_) ++taken_;
    front_.reset();
    if (rest_.size() < 1 + net::kHeaderBytes) return;
    const auto header = net::parse_header(rest_.subspan(1).first<net::kHeaderBytes>());
    if (!header) return;
    front_.emplace(Frame{static_cast<std::uint8_t>(rest_[0]), *header, {}});
    rest_ = rest_.subspan(1 + net::kHeaderBytes);
    front_->payload = rest_.first(std::min<std::size_t>(rest_.size(), header->bytes));
    rest_ = rest_.subspan(front_->payload.size());
  }

 private:
  std::span<const std::byte> rest_;
  std::optional<Frame> front_;
  std::size_t taken_ = 0;
};

/// Whether what waits for frames should go on: not after a few looks in a row that took none.
class Patience {
 public:
  explicit Patience(const Frames& frames) : frames_(frames), taken_(frames.taken()) {}
  bool left() {
    idle_ = frames_.taken() == taken_ ? idle_ + 1 : 0;
    taken_ = frames_.taken();
    return idle_ < kLooks;
  }

 private:
  static constexpr int kLooks = 16;
  const Frames& frames_;
  std::size_t taken_;
  int idle_ = 0;
};

/// The reverse: adds a frame to an input.
inline void append(std::string& input, std::uint8_t mark, const net::FrameHeader& header,
                   std::span<const std::byte> payload) {
  input += static_cast<char>(mark);
  const auto bytes = net::encode(header);
  input.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  input.append(reinterpret_cast<const char*>(payload.data()), payload.size());
}

/// Gives a frame to a sink, as a connection does. False: the sink has no place now.
inline Result<bool> deliver(const Frame& frame, net::FrameSink& sink) {
  TUTTI_TRY(const auto place, sink.place(frame.header));
  if (!place) return false;
  const auto zeros = std::fill_n(std::ranges::copy(frame.payload, *place).out,
                                 frame.header.bytes - frame.payload.size(), std::byte{});
  require(zeros == *place + frame.header.bytes, "a payload has another size");
  TUTTI_RETURN_IF_ERROR(sink.arrived(frame.header));
  return true;
}

/// Takes frames and sends none: the peer of a rank that is fuzzed hears nothing.
class Deaf : public net::Carrier {
 public:
  void send(net::FrameHeader, std::span<const net::Piece>) override { ++sent_; }
  using Carrier::send;
  bool any_memory() const override { return true; }
  std::size_t pending() const override { return 0; }
  std::string where() const override { return "fuzz: rank 1"; }
  void leave() override {}
  bool left() override { return true; }
  std::size_t sent() const { return sent_; }

 private:
  std::size_t sent_ = 0;
};

}  // namespace tutti::fuzz
