// File: plan/mix.h: spreads the bits of a word, for hashes whose words are added up in any order.
#pragma once
#include <cstdint>

namespace tutti::plan {

/// The finalizer of SplitMix64: every bit of the result depends on all bits.
constexpr std::uint64_t mix(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

}  // namespace tutti::plan
