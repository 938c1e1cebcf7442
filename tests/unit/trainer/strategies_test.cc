// The strategies: the weights of one process, the bytes of their formulas, ZeRO's memory, and that
// each learns.
#include "trainer/strategies/strategy.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "support/catch.h"
#include "support/cluster.h"
#include "trainer/train.h"

namespace tutti::test {
namespace {

using namespace trainer;

const Split& digits() {
  static const Split parts = [] {
    auto all = read_digits(default_data_path());
    if (!all) FAIL(all.error().to_string());
    return split(*all, 1);
  }();
  return parts;
}

std::vector<Outcome> train_all(int ranks, const TrainOptions& options,
                               const Split& data = digits()) {
  auto comms = Communicator::in_process(ranks);
  REQUIRE(comms);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          auto outcome = train(comm, data, options, [](int, int, const Epoch&) {});
          if (!outcome) {
            comm.abort(outcome.error().what);
            return outcome.error().to_string();
          }
          outcomes[static_cast<std::size_t>(comm.rank().value)] = *std::move(outcome);
          return "";
        }) == "");
  return outcomes;
}

TrainOptions options_of(const std::string& strategy, int epochs = 1) {
  TrainOptions options;
  options.strategy.name = strategy;
  options.epochs = epochs;
  return options;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max<double>(most, std::abs(a[i] - b[i]));
  return most;
}

/// Many layers of one size, so that no layer is large beside a shard of the whole.
TrainOptions even_layers(const std::string& strategy) {
  TrainOptions options = options_of(strategy);
  options.model = {.name = "mlp", .width = 64, .depth = 24};
  options.strategy.optimiser.name = "adam";
  options.slices = 4;
  options.batch = 512;
  return options;
}

TEST_CASE("synchronous strategies give the weights of one process, to the last bit") {
  for (const char* optimiser : {"sgd", "adam"}) {
    TrainOptions options = options_of("ddp");
    options.strategy.optimiser.name = optimiser;
    options.slices = 8;
    const std::vector<float> one = train_all(1, options)[0].weights;
    for (const char* strategy : {"ddp", "zero1"}) {
      options.strategy.name = strategy;
      for (const int ranks : {1, 2, 4}) {
        INFO(strategy << " with " << optimiser << " on " << ranks);
        const auto outcomes = train_all(ranks, options);
        for (const Outcome& outcome : outcomes) CHECK(distance(outcome.weights, one) == 0);
      }
      INFO(strategy << " with " << optimiser << " on 3");  // Slices group differently.
      CHECK(distance(train_all(3, options)[0].weights, one) < 2e-3);
    }
  }
}

TEST_CASE("with several batches in a step strategies agree to the bit on the same ranks") {
  TrainOptions options = options_of("ddp");
  options.accumulate = 2;
  const std::vector<float> ddp = train_all(2, options)[0].weights;
  // One process adds the batches in another order than two that add up their own first.
  CHECK(distance(train_all(1, options)[0].weights, ddp) < 1e-3);
  options.strategy.name = "zero1";
  CHECK(distance(train_all(2, options)[0].weights, ddp) == 0);
}

TEST_CASE("optimisers by unit give the weights of one process, to rounding") {
  for (const char* optimiser : {"lars", "lamb"}) {
    TrainOptions options = options_of("ddp");
    options.strategy.optimiser.name = optimiser;
    const std::vector<float> one = train_all(1, options)[0].weights;
    for (const char* strategy : {"ddp", "zero1"}) {
      options.strategy.name = strategy;
      INFO(strategy << " with " << optimiser);
      CHECK(distance(train_all(2, options)[0].weights, one) < 1e-3);
    }
  }
}

TEST_CASE("a rank holds what ZeRO's arithmetic says, within 10 %") {
  // Bytes for each parameter, in float32 with Adam, on N = 4 ranks: weights, gradients, moments.
  const std::map<std::string, double> formulas{{"ddp", 4 + 4 + 8}, {"zero1", 4 + 4 + 8 / 4.0}};
  for (const auto& [strategy, bytes] : formulas) {
    const Outcome outcome = train_all(4, even_layers(strategy))[0];
    const auto size = static_cast<double>(outcome.weights.size());
    INFO(strategy);
    CHECK(static_cast<double>(outcome.memory.model_states()) / size == Approx(bytes).epsilon(0.1));
  }
}

TEST_CASE("a rank sends what the formulas say, exactly") {
  const std::map<std::string, double> formulas{{"ddp", 2 * 3 / 4.0}, {"zero1", 2 * 3 / 4.0}};
  for (const auto& [strategy, share] : formulas) {
    TrainOptions options = even_layers(strategy);
    options.model = {.name = "mlp", .width = 64, .depth = 3};
    for (const Outcome& outcome : train_all(4, options)) {
      const auto bytes = static_cast<double>(outcome.weights.size() * sizeof(float));
      INFO(strategy);
      CHECK(outcome.epochs.back().bytes ==
            Approx(share * bytes * static_cast<double>(outcome.steps)).epsilon(2e-3));
    }
  }
}

TEST_CASE("every strategy reaches its accuracy") {
  for (const StrategyInfo& info : strategies()) {
    INFO(info.name);
    const auto outcomes = train_all(2, options_of(info.name, 12));
    CHECK(outcomes[0].epochs.back().accuracy >= 0.95);
    CHECK(outcomes[0].weights_hash == outcomes[1].weights_hash);
  }
}

TEST_CASE("local SGD sends once in its steps, and DiLoCo's outer momentum changes the outcome") {
  TrainOptions options = options_of("local", 2);
  options.strategy.local_steps = 10;
  const Outcome plain = train_all(2, options)[0];
  const auto bytes = static_cast<double>(plain.weights.size() * sizeof(float));
  CHECK(plain.epochs.back().bytes == Approx(bytes * static_cast<double>(plain.steps / 10)));
  options.strategy.outer_rate = 0.7;
  options.strategy.outer_momentum = 0.9;
  CHECK(train_all(2, options)[0].weights != plain.weights);
  options.strategy.outer_rate = 1;
  options.strategy.outer_momentum = 0;
  options.strategy.post_local_steps = 1000;  // An average after each step.
  CHECK(train_all(2, options)[0].epochs.back().bytes ==
        Approx(bytes * static_cast<double>(plain.steps)));
}

TEST_CASE("a strategy that there is not is refused") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  const auto outcome =
      train((*comms)[0], digits(), options_of("none"), [](int, int, const Epoch&) {});
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code == Code::kInvalidArgument);
  CHECK(outcome.error().what.find("ddp") != std::string::npos);
}

}  // namespace
}  // namespace tutti::test
