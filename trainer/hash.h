// File: trainer/hash.h: one hash of bits, of weights and of files.
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::trainer {

/// FNV-1a, over the words of 32 bits of values and the bytes of texts. A word that changes always
/// changes the hash.
class WordHash {
 public:
  void add(std::span<const float> values) {
    for (const float value : values) add_word(std::bit_cast<std::uint32_t>(value));
  }
  void add(std::string_view text) {
    for (const char c : text) add_word(static_cast<unsigned char>(c));
  }
  std::uint64_t value() const { return value_; }

 private:
  void add_word(std::uint32_t word) { value_ = (value_ ^ word) * 1099511628211ULL; }

  std::uint64_t value_ = 14695981039346656037ULL;
};

}  // namespace tutti::trainer
