// The optimisers: the same bits on shards as on the whole, norms of whole units, rates.
#include "trainer/optimisers/optimiser.h"

#include <cmath>
#include <random>

#include "support/catch.h"

namespace tutti::test {
namespace {

using namespace trainer;

constexpr std::size_t kSize = 1000;

/// Weights after five steps, with units cut into so many runs. Values of all shards are summed in
/// one process, so there is nothing to sum over ranks.
std::vector<float> after_steps(const std::string& name, std::size_t cuts) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> weights(kSize), gradient(kSize);
  for (float& weight : weights) weight = normal(random);
  std::vector<Run> runs;
  for (std::size_t c = 0; c < cuts; ++c) {
    const std::size_t begin = kSize * c / cuts, end = kSize * (c + 1) / cuts;
    runs.push_back({0, begin, end - begin, weights.data() + begin, gradient.data() + begin});
  }
  Ledger ledger;
  auto updater = Updater::make({.name = name, .weight_decay = 0.01}, ledger, runs, 1);
  REQUIRE(updater);
  for (std::uint64_t number = 1; number <= 5; ++number) {
    for (float& slope : gradient) slope = normal(random);
    REQUIRE(updater->update({number, 0.01, 0.5}));
  }
  CHECK(ledger.most(Holds::kOptimiser) ==
        kSize * sizeof(float) * (name == "adam" || name == "lamb" ? 2 : 1));
  return weights;
}

TEST_CASE("elementwise optimisers change a shard to the bits of the whole") {
  for (const char* name : {"sgd", "adam"}) {
    for (const std::size_t cuts : {2U, 3U, 7U, 1000U}) {
      INFO(name << " in " << cuts);
      CHECK(after_steps(name, cuts) == after_steps(name, 1));
    }
  }
}

TEST_CASE("optimisers with norms take them over the whole unit") {
  for (const char* name : {"lars", "lamb"}) {
    const auto whole = after_steps(name, 1), cut = after_steps(name, 7);
    double most = 0;
    for (std::size_t i = 0; i < kSize; ++i)
      most = std::max<double>(most, std::abs(whole[i] - cut[i]));
    INFO(name);
    CHECK(most < 1e-5);
    CHECK(whole != after_steps(std::string(name) == "lars" ? "sgd" : "adam", 1));
  }
}

TEST_CASE("one step of each optimiser is what its equation says") {
  const double w = 2, g = 0.5, decay = 0.1, rate = 0.01;
  const auto stepped = [&](const char* name) {
    float weight = 2, slope = 0.5;
    Ledger ledger;
    auto updater = Updater::make({.name = name, .weight_decay = decay}, ledger,
                                 {{0, 0, 1, &weight, &slope}}, 1);
    REQUIRE(updater);
    REQUIRE(updater->update({1, rate, 1}));
    return static_cast<double>(weight);
  };
  CHECK(stepped("sgd") == Approx(w - rate * (g + decay * w)));
  CHECK(stepped("adam") == Approx(w - rate * (1 + decay * w)));
  CHECK(stepped("lars") == Approx(w - rate * 0.01 * w));
  CHECK(stepped("lamb") == Approx(w - rate * w));
}

TEST_CASE("rates warm up, fall, and grow with the batch if asked to") {
  const RateOptions plain{.peak = 1, .warm_up_epochs = 2};
  CHECK(rate_at(plain, 0, 10, 64) == Approx(0.1));
  CHECK(rate_at(plain, 2, 10, 64) == Approx(1));
  CHECK(rate_at(plain, 10, 10, 64) == Approx(0.01));
  CHECK(rate_at(plain, 2, 10, 256) == Approx(1));
  CHECK(rate_at({.peak = 1, .warm_up_epochs = 2, .reference_batch = 64}, 2, 10, 256) == Approx(4));
  CHECK(default_rate("adam") > 0);
  Ledger ledger;
  CHECK_FALSE(Updater::make({.name = "none"}, ledger, {}, 0));
}

}  // namespace
}  // namespace tutti::test
