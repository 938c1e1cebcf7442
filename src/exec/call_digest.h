// File: exec/call_digest.h: what a call line's tag says of its rank: the call's number, and a
// digest of all calls that the rank has made up to it.
//
// Ranks that make the same calls have the same digests. A digest depends on the one before, so a
// call that differs is seen in the tag of every later line of that rank as well. That matters
// where a rank that only gives, the root of a small broadcast, waits for nobody in the call that
// differs.
#pragma once
#include <cstdint>

namespace tutti::exec {

/// Bits of a tag that hold the call's number; the others hold the digest. Ranks are at most kCalls
/// calls apart, so few bits would do, but the lines of large calls may be old: whoever finds a
/// number it looks for with another digest consults the rank's record, which has numbers in full.
inline constexpr int kNumberBits = 24;
inline constexpr std::uint64_t kNumberMask = (std::uint64_t{1} << kNumberBits) - 1;

/// A bijection of 64 bits in which every bit of the input changes each of the output with a
/// probability of a half.
constexpr std::uint64_t avalanche(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

/// The digest after a call of `what` (pack, and its way) and `count`, where `before` was the one
/// before. Of calls that differ in the count alone it is never the same.
constexpr std::uint64_t next_digest(std::uint64_t before, std::uint64_t what, std::uint64_t count) {
  std::uint64_t x = before ^ count;
  x ^= x >> 32;
  x *= 0x9e3779b97f4a7c15ULL;
  x ^= x >> 32;
  return avalanche(x + what);
}

/// The same where the call is like the one before. It costs one instruction, as most calls do so.
/// Still no two orders of calls have the same digests but by chance: whatever comes next is mixed
/// with how often that was.
constexpr std::uint64_t same_again(std::uint64_t before) { return before + 0x9e3779b97f4a7c15ULL; }

constexpr std::uint64_t tag_of(std::uint64_t number, std::uint64_t digest) {
  return (digest & ~kNumberMask) | (number & kNumberMask);
}
/// Whether two tags are of calls with the same number, as far as tags say that.
constexpr bool same_number(std::uint64_t a, std::uint64_t b) {
  return ((a ^ b) & kNumberMask) == 0;
}

/// CallRecord::blocked_on: that a rank waits for a rank in a call.
constexpr std::uint64_t wait_of(std::uint64_t number, int rank) {
  return number << 16 | (static_cast<std::uint64_t>(rank) + 1);
}
/// Whom; -1: nobody.
constexpr int awaited_in(std::uint64_t wait) { return static_cast<int>(wait & 0xffff) - 1; }

}  // namespace tutti::exec
