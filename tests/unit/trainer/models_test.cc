// The networks: the gradient of each model is its loss's slope, and slices do not matter.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/catch.h"
#include "trainer/passes.h"

namespace tutti::test {
namespace {

using namespace trainer;

/// A strategy that keeps parameters and the gradient where the test can see them.
class Still : public Strategy {
 public:
  explicit Still(const Setup& setup)
      : Strategy(setup), weights(setup.network.size()), slopes(setup.network.size()) {}
  Status begin(std::span<const float> /*weights*/) override { return ok(); }
  Result<const float*> parameters(std::size_t unit) override {
    return weights.data() + units()[unit].offset;
  }
  Result<Target> gradient(std::size_t unit) override {
    return Target{slopes.data() + units()[unit].offset, false};
  }
  Status ready(std::size_t unit) override {
    order.push_back(unit);
    return ok();
  }
  Status step(const StepInfo& /*info*/) override { return ok(); }
  std::vector<Piece> pieces() override { return {}; }

  std::vector<float> weights, slopes;
  std::vector<std::size_t> order;
};

Samples samples_for(const std::string& model) {
  auto samples =
      model == "transformer" ? read_text(default_text_path()) : read_digits(default_data_path());
  if (!samples) FAIL(samples.error().to_string());
  return *std::move(samples);
}

struct Bench {
  explicit Bench(const std::string& model)
      : data(samples_for(model)),
        network([&] {
          auto made =
              make_network({.name = model, .width = model == "mlp" ? 16U : 8U, .depth = 2}, data);
          if (!made) FAIL(made.error().to_string());
          return *std::move(made);
        }()),
        comms(Communicator::in_process(1)),
        traffic((*comms)[0]),
        still({traffic, network, ledger, options}),
        passes(network, ledger),
        samples(12) {
    std::iota(samples.begin(), samples.end(), std::size_t{0});
    network.initialise(3, still.weights.data());
  }

  double loss(std::size_t slices, const std::vector<char>& skipped = {}) {
    std::vector<Slice> cut;
    for (std::size_t s = 0; s < slices; ++s)
      cut.push_back({samples.data() + s * samples.size() / slices, samples.size() / slices});
    const auto sum = passes.train(still, data, cut, {}, skipped);
    REQUIRE(sum);
    return *sum;
  }

  Samples data;
  Network network;
  Result<std::vector<Communicator>> comms;
  Traffic traffic;
  Ledger ledger;
  StrategyOptions options;
  Still still;
  Passes passes;
  std::vector<std::size_t> samples;
};

TEST_CASE("the gradient of each model is its loss's slope") {
  for (const char* model : {"mlp", "conv", "transformer"}) {
    Bench bench(model);
    bench.loss(3);
    const std::vector<float> gradient = bench.still.slopes;
    CHECK(std::is_sorted(bench.still.order.rbegin(), bench.still.order.rend()));
    CHECK(bench.still.order.size() == bench.network.units().size());
    for (const Unit& unit : bench.network.units()) {
      double most_wrong = 0, most = 0;
      for (std::size_t i = unit.offset; i < unit.offset + unit.size;
           i += std::max<std::size_t>(1, unit.size / 60)) {
        const float step = 2e-3F, kept = bench.still.weights[i];
        bench.still.weights[i] = kept + step;
        const double up = bench.loss(3);
        bench.still.weights[i] = kept - step;
        const double down = bench.loss(3);
        bench.still.weights[i] = kept;
        const double slope = (up - down) / (2.0 * step);
        most_wrong = std::max(most_wrong, std::abs(slope - gradient[i]));
        most = std::max<double>(most, std::abs(gradient[i]));
      }
      INFO(model << ": " << unit.name);
      CHECK(most > 0.05);
      CHECK(most_wrong < 0.04 * most + 0.02);
    }
  }
}

TEST_CASE("slices change a gradient by rounding only, also of batch normalisation") {
  for (const char* model : {"mlp", "conv", "transformer"}) {
    Bench bench(model);
    const double whole = bench.loss(1);
    const std::vector<float> gradient = bench.still.slopes;
    CHECK(bench.loss(6) == Approx(whole).epsilon(1e-5));
    double most = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      most = std::max<double>(most, std::abs(gradient[i] - bench.still.slopes[i]));
    INFO(model);
    CHECK(most < 1e-3);
  }
}

TEST_CASE("attention does not look ahead") {
  constexpr std::size_t kPositions = 5, kWidth = 4;
  const LayerPtr attention = make_attention(kPositions, kWidth, 2);
  std::vector<float> input(attention->inputs());
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = std::sin(static_cast<float>(i));
  Tape before, after;
  attention->forward({.input = input.data(), .samples = 1}, before);
  const std::size_t last = (kPositions - 1) * 3 * kWidth;
  for (std::size_t i = last; i < input.size(); ++i) input[i] += 1;
  attention->forward({.input = input.data(), .samples = 1}, after);
  const auto seen = (kPositions - 1) * kWidth;
  CHECK(std::equal(before.output.begin(), before.output.begin() + seen, after.output.begin()));
  CHECK(before.output != after.output);
}

TEST_CASE("a block that is left out passes its input and its error on") {
  Bench bench("transformer");
  const double whole = bench.loss(2);
  std::vector<char> skipped(bench.network.units().size());
  skipped[1] = 1;
  bench.still.order.clear();
  CHECK(bench.loss(2, skipped) != whole);
  CHECK(bench.still.order == std::vector<std::size_t>{3, 2, 0});
  const float* first = bench.still.slopes.data();
  CHECK(std::any_of(first, first + 100, [](float slope) { return slope != 0; }));
}

TEST_CASE("a model that does not fit the data, or that there is not, is refused") {
  const Samples digits = samples_for("mlp"), text = samples_for("transformer");
  CHECK(text.classes > 50);
  CHECK_FALSE(make_network({.name = "transformer"}, digits));
  CHECK_FALSE(make_network({.name = "conv"}, text));
  CHECK_FALSE(make_network({.name = "transformer", .width = 7}, text));
  CHECK_FALSE(make_network({.name = "mlp", .width = 1'000'000}, digits));
  const auto none = make_network({.name = "resnet"}, digits);
  REQUIRE_FALSE(none);
  CHECK(none.error().what.find("mlp, conv and transformer") != std::string::npos);
}

}  // namespace
}  // namespace tutti::test
