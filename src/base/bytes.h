// File: base/bytes.h: little-endian numbers in and out of bytes of a known size.
//
// `ByteWriter` fills memory that is large enough by construction, so running over is our own bug.
// `ByteReader` looks at bytes from outside: what is not there reads as zeros, and `whole` tells.
#pragma once
#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"

namespace tutti {

class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> into) : rest_(into) {}
  template <class Unsigned>
  void number(Unsigned value) {
    TUTTI_CHECK(sizeof(Unsigned) <= rest_.size());
    for (std::size_t i = 0; i < sizeof(Unsigned); ++i)
      rest_[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
    rest_ = rest_.subspan(sizeof(Unsigned));
  }
  void copy(std::span<const std::byte> bytes) {
    TUTTI_CHECK(bytes.size() <= rest_.size());
    std::ranges::copy(bytes, rest_.begin());
    rest_ = rest_.subspan(bytes.size());
  }
  /// Bytes that are not filled yet.
  std::size_t room() const { return rest_.size(); }

 private:
  std::span<std::byte> rest_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <class Unsigned>
  Unsigned number() {
    Unsigned value = 0;
    const auto bytes = take(sizeof(Unsigned));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value = static_cast<Unsigned>(value | static_cast<Unsigned>(bytes[i]) << (8 * i));
    return value;
  }
  std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) {
      short_ = true;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  std::span<const std::byte> take_rest() { return take(rest_.size()); }
  /// Everything was there, and nothing is left over.
  bool whole() const { return !short_ && rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  bool short_ = false;
};

}  // namespace tutti
