// File: base/hash.h: all hashing of words and texts.
//
// These hashes keep things apart: plans, calls, machines, settings, names that ranks derive. They
// are the same on every machine, so ranks can compare them. They hide nothing and withstand no
// attacker; base/net/handshake.h has a keyed hash for that.
#pragma once
#include <cstdint>
#include <string_view>

namespace tutti {

/// 2^64 divided by the golden ratio. The multiples of this odd number are far apart.
inline constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;

/// Spreads the bits of a word: every bit of the result depends on all bits of the word. Different
/// words have different results. This is the finalizer of SplitMix64.
constexpr std::uint64_t mix(std::uint64_t word) {
  word += kGoldenRatio;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

/// 64 bits of a text: FNV-1a.
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// A hash of a sequence of words and texts. Their order matters. Sequences of one length that
/// differ in one word have different hashes.
class Hash {
 public:
  constexpr Hash& add(std::uint64_t word) {
    value_ = mix(value_ ^ word);
    return *this;
  }
  constexpr Hash& add(std::string_view text) { return add(hash_text(text)); }
  /// Adds the length too: where one list ends and the next begins makes a difference.
  template <class List>
  constexpr Hash& add_all(const List& list) {
    add(static_cast<std::uint64_t>(list.size()));
    for (const auto& item : list) add(static_cast<std::uint64_t>(item));
    return *this;
  }
  constexpr std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace tutti
