// The one hash: published values, every bit counts, and order and lengths make a difference.
#include "base/hash.h"

#include <array>
#include <bit>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/catch.h"

namespace tutti {
namespace {

// The test vectors of the FNV authors, and the first two numbers of SplitMix64 seeded with 0.
static_assert(hash_text("") == 0xcbf29ce484222325);
static_assert(hash_text("a") == 0xaf63dc4c8601ec8c);
static_assert(hash_text("foobar") == 0x85944171f73967e8);
static_assert(hash_text("\xff") == (0xcbf29ce484222325ULL ^ 0xff) * 0x100000001b3ULL);
static_assert(mix(0) == 0xe220a8397b1dcdaf);
static_assert(mix(kGoldenRatio) == 0x6e789e6aa1b965f4);

TEST_CASE("every bit of a word changes half of the hash's bits, wherever the word is") {
  std::mt19937_64 random(Catch::rngSeed());
  constexpr int kSamples = 2000, kWords = 3;
  for (int bit = 0; bit < kWords * 64; ++bit) {
    std::array<int, 64> each{};
    int changed = 0;
    for (int i = 0; i < kSamples; ++i) {
      std::array<std::uint64_t, kWords> words = {random(), random(), random()};
      const std::uint64_t one = Hash().add_all(words).value();
      words[static_cast<std::size_t>(bit / 64)] ^= std::uint64_t{1} << (bit % 64);
      const std::uint64_t difference = one ^ Hash().add_all(words).value();
      changed += std::popcount(difference);
      for (int b = 0; b < 64; ++b) each[static_cast<std::size_t>(b)] += difference >> b & 1;
    }
    INFO("bit " << bit % 64 << " of word " << bit / 64);
    CHECK(changed > 0.49 * 64 * kSamples);
    CHECK(changed < 0.51 * 64 * kSamples);
    for (const int times : each) CHECK((times > 0.4 * kSamples && times < 0.6 * kSamples));
  }
}

TEST_CASE("sequences of small words have hashes of their own, in any order and division") {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  const auto add = [&](const Hash& hash) {
    seen.insert(hash.value());
    ++count;
  };
  for (std::uint64_t a = 0; a < 64; ++a) {
    add(Hash().add(a));
    for (std::uint64_t b = 0; b < 64; ++b) {
      add(Hash().add(a).add(b));
      add(Hash().add(std::to_string(a)).add(std::to_string(b)));
      add(Hash().add_all(std::vector{a}).add_all(std::vector{b}));
      add(Hash().add_all(std::vector{a, b}));
    }
  }
  CHECK(seen.size() == count);
}

}  // namespace
}  // namespace tutti
