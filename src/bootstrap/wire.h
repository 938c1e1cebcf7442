// File: bootstrap/wire.h: what travels between a TCP store and its clients.
//
// After the handshake both send sealed records (secure_link.h), which carry one request and one
// answer in turn. All numbers are little-endian.
//
//   frame    length u32 · kind u8 · body     (the length counts kind and body)
//   put      key length u16 · key · value               → done, refused
//   get      wait in ms u32 · key length u16 · key      → value, absent, failed, refused
//   fail     error                                      → done
//   enter    rank i32 (-1: not known) · its process     → nothing. From now on the end of the
//                                                         connection means the end of that rank
//   leave                                               → nothing. It no longer does
//   value    the value;  failed: an error;  refused: text;  done, absent: nothing
//   error    code i32 · rank i32 · peer i32 · text
//
// Everything here judges bytes from outside: every length is bounded, nothing is trusted, and bytes
// that make no sense are an Error.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "bootstrap/limits.h"
#include "tutti/rendezvous.h"

namespace tutti::bootstrap::wire {

inline constexpr std::size_t kLengthBytes = 4;
/// Leaves room for the largest value.
inline constexpr std::size_t kMostFrameBytes = kMostValueBytes + kMostKeyBytes + 64;

enum class Kind : std::uint8_t {
  kPut = 2,
  kGet = 3,
  kFail = 4,
  kEnter = 5,
  kLeave = 6,
  kDone = 16,
  kValue = 17,
  kAbsent = 18,
  kFailed = 19,
  kRefused = 20,
};

/// Which of the members have a meaning depends on the kind. `key`, `value` and `text` point into
/// the bytes that were parsed.
struct Message {
  Kind kind = Kind::kDone;
  std::uint32_t wait_ms = 0;
  std::string_view key{};
  std::span<const std::byte> value{};
  std::string_view text{};
  Error error{};
  Rank rank{-1};
};
/// A frame with its length; for kValue without the value, which is sent from where it lies.
Bytes encode(const Message& message);
/// The reverse, of a frame without its length. kInvalidArgument says what is wrong with it.
Result<Message> parse(std::span<const std::byte> frame);

/// Cuts a stream into frames. Holds no more than it was given, and is given no more than it allows.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most) : most_(most) {}
  void append(std::span<const std::byte> bytes);
  /// The next whole frame, valid until the next call; empty when it is still incomplete;
  /// kInvalidArgument when its length is 0 or above the bound.
  Result<std::optional<std::span<const std::byte>>> next();
  /// Bytes that have come and were not handed out yet.
  std::size_t pending() const { return buffer_.size() - read_; }

 private:
  Bytes buffer_;
  std::size_t read_ = 0;
  std::size_t most_;
};

}  // namespace tutti::bootstrap::wire
