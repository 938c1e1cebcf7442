// The digest of calls: different calls have equal digests no more often than chance would have it,
// and the part of the digest in a tag is as good.
#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <vector>

#include "exec/calls/call.h"
#include "exec/calls/call_digest.h"
#include "support/catch.h"

namespace tutti::exec {
namespace {

std::uint64_t all_reduce_word() {
  Call call;
  call.type = DataType::kFloat32;
  return pack(call) | kEager;
}

TEST_CASE("counts of any distance have other digests") {
  // In 16 bits of a digest, one pair in 65536 is alike, and no distance is worse than the others.
  constexpr int kStarts = 48;
  constexpr std::uint64_t kFarthest = 1'000'000;
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const std::uint64_t what = all_reduce_word();
  std::vector<std::uint8_t> at_distance(kFarthest + 1);
  std::uint64_t alike = 0, tags = 0;
  for (int start = 0; start < kStarts; ++start) {
    const std::uint64_t before = random(), count = random() % 5000;
    const std::uint64_t digest = next_digest(before, what, count);
    for (std::uint64_t d = 1; d <= kFarthest; ++d) {
      const std::uint64_t other = next_digest(before, what, count + d);
      tags += tag_of(7, other) == tag_of(7, digest);
      if ((other ^ digest) >> 48 != 0) continue;
      ++alike;
      ++at_distance[d];
    }
  }
  const double expected = static_cast<double>(kStarts) * kFarthest / 65536;
  CHECK(static_cast<double>(alike) > 0.8 * expected);
  CHECK(static_cast<double>(alike) < 1.2 * expected);
  CHECK(*std::max_element(at_distance.begin(), at_distance.end()) <= 4);
  CHECK(tags == 0);
}

TEST_CASE("every bit of a call changes half of the digest's bits") {
  std::mt19937_64 random(Catch::rngSeed());
  constexpr int kSamples = 2000;
  for (int bit = 0; bit < 3 * 64; ++bit) {
    int changed = 0;
    std::array<int, 64> each{};
    for (int i = 0; i < kSamples; ++i) {
      std::array<std::uint64_t, 3> of = {random(), random(), random()};
      const std::uint64_t one = next_digest(of[0], of[1], of[2]);
      of[static_cast<std::size_t>(bit / 64)] ^= std::uint64_t{1} << (bit % 64);
      const std::uint64_t difference = one ^ next_digest(of[0], of[1], of[2]);
      changed += std::popcount(difference);
      for (int b = 0; b < 64; ++b) each[static_cast<std::size_t>(b)] += difference >> b & 1;
    }
    INFO("bit " << bit % 64 << " of word " << bit / 64);
    CHECK(changed > 0.49 * 64 * kSamples);
    CHECK(changed < 0.51 * 64 * kSamples);
    for (const int times : each) CHECK((times > 0.4 * kSamples && times < 0.6 * kSamples));
  }
}

TEST_CASE("a call that differs is in all later digests") {
  std::mt19937_64 random(Catch::rngSeed());
  std::uint64_t one = 0, other = 0;
  const std::uint64_t what = all_reduce_word();
  one = next_digest(one, what, 8), other = next_digest(other, what, 2147);
  for (int i = 0; i < 1000; ++i) {
    REQUIRE(tag_of(1, one) != tag_of(1, other));
    const std::uint64_t count = random() % 100;
    one = next_digest(one, what, count), other = next_digest(other, what, count);
  }
}

TEST_CASE("orders of calls that repeat have other digests") {
  // All sequences of 12 calls of two kinds: as many digests.
  constexpr int kCallsMade = 12;
  const std::uint64_t what = all_reduce_word();
  std::vector<std::uint64_t> tags;
  for (unsigned sequence = 0; sequence < 1U << kCallsMade; ++sequence) {
    std::uint64_t digest = 0;
    for (int call = 0; call < kCallsMade; ++call) {
      const unsigned kind = sequence >> call & 1;
      const bool again = call != 0 && kind == (sequence >> (call - 1) & 1);
      digest = again ? same_again(digest) : next_digest(digest, what, 8 + kind);
    }
    tags.push_back(tag_of(kCallsMade, digest));
  }
  std::sort(tags.begin(), tags.end());
  CHECK(std::adjacent_find(tags.begin(), tags.end()) == tags.end());
}

TEST_CASE("tags keep what tells calls apart") {
  CHECK(same_number(tag_of(5, 1), tag_of(5, ~std::uint64_t{0})));
  CHECK_FALSE(same_number(tag_of(5, 1), tag_of(6, 1)));
  CHECK(same_number(tag_of(5, 1), tag_of(5 + kNumberMask + 1, 1)));
  CHECK(tag_of(5, std::uint64_t{1} << 63) != tag_of(5, 0));
  CHECK(awaited_in(wait_of(9, 0)) == 0);
  CHECK(awaited_in(wait_of(9, 4095)) == 4095);
  CHECK(awaited_in(0) == -1);
}

}  // namespace
}  // namespace tutti::exec
