// A sample of cases is never empty, and its seed brings it back.
#include "support/sample.h"

#include <set>

#include "support/catch.h"

namespace tutti::test {
namespace {

using Picked = std::vector<std::pair<std::string, int>>;

/// The cases that run, in groups of 1, 2, ... 9 cases.
Picked pick(unsigned one_in, std::uint64_t seed) {
  Picked picked;
  std::mt19937_64 random(seed);
  Sample sample(one_in);
  for (int size = 1; size < 10; ++size) {
    const std::string group = "group of " + std::to_string(size);
    for (int i = 0; i < size; ++i)
      sample.add(group, [&, group, i] { picked.emplace_back(group, i); });
  }
  sample.run(random);
  return picked;
}

}  // namespace

TEST_CASE("a sample has at least one case of every group, whatever the seed is") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    for (const unsigned one_in : {2U, 8U, 48U, 1000U}) {
      const Picked picked = pick(one_in, seed);
      std::set<std::string> groups;
      for (const auto& [group, i] : picked) groups.insert(group);
      REQUIRE(groups.size() == 9);
      if (one_in > 9) REQUIRE(picked.size() == 9);
    }
  }
}

TEST_CASE("a sample of all is all; the same seed gives the same one, others give others") {
  CHECK(pick(1, 7).size() == 45);
  CHECK(pick(2, 7).size() == 1 + 1 + 2 + 2 + 3 + 3 + 4 + 4 + 5);
  std::set<Picked> different;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CHECK(pick(8, seed) == pick(8, seed));
    different.insert(pick(8, seed));
  }
  CHECK(different.size() > 10);
}

}  // namespace tutti::test
