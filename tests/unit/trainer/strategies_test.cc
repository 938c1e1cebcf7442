// The strategies: the weights of one process, the bytes of their formulas, ZeRO's memory, and that
// each learns.
#include "trainer/strategies/strategy.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "support/catch.h"
#include "support/cluster.h"
#include "trainer/strategies/adasum.h"
#include "trainer/train.h"
#include "unit/trainer/digits.h"

namespace tutti::test {
namespace {

using namespace trainer;

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
    const bool adam = std::string_view(optimiser) == "adam";
    TrainOptions options = options_of("ddp");
    options.strategy.optimiser.name = optimiser;
    options.slices = 4;
    options.batch = 144;
    const std::vector<float> one = train_all(1, options)[0].weights;
    for (const char* strategy :
         {"ddp", "horovod", "zero1", "zero2", "zero3", "fsdp", "hierarchical"}) {
      options.strategy.name = strategy;
      for (const int ranks : adam ? std::vector{2} : std::vector{1, 2, 4}) {
        INFO(strategy << " with " << optimiser << " on " << ranks);
        const auto outcomes = train_all(ranks, options);
        for (const Outcome& outcome : outcomes) CHECK(distance(outcome.weights, one) == 0);
      }
      if (adam) continue;
      INFO(strategy << " with " << optimiser << " on 3");  // Slices group differently.
      CHECK(distance(train_all(3, options)[0].weights, one) < 2e-3);
    }
  }
}

TEST_CASE("with several batches in a step strategies agree to the bit") {
  TrainOptions options = options_of("ddp");
  options.accumulate = 2;
  const std::vector<float> one = train_all(1, options)[0].weights;
  // A rank adds up its own batches before it reduces; these agree with each other.
  const std::vector<float> ddp = train_all(2, options)[0].weights;
  CHECK(distance(one, ddp) < 1e-3);
  for (const char* strategy : {"horovod", "zero1"}) {
    INFO(strategy);
    options.strategy.name = strategy;
    CHECK(distance(train_all(2, options)[0].weights, ddp) == 0);
  }
  // Each batch is reduced on its own, as one process adds them up.
  for (const char* strategy : {"zero2", "zero3", "fsdp"}) {
    INFO(strategy);
    options.strategy.name = strategy;
    CHECK(distance(train_all(2, options)[0].weights, one) == 0);
  }
}

TEST_CASE("a synchronous parameter server gives the weights of its workers' all-reduce") {
  TrainOptions options = options_of("ddp");
  const std::vector<float> one = train_all(1, options)[0].weights;
  options.strategy.name = "ps";
  for (const int servers : {1, 2, 3}) {
    options.strategy.servers = servers;
    INFO(servers << " servers");
    CHECK(distance(train_all(servers + 2, options)[0].weights, one) == 0);
  }
}

TEST_CASE("asynchronous gradients are not older than the bound, and compensation changes them") {
  // How old gradients are depends on the machine's load, and what an epoch teaches with it.
  TrainOptions options = options_of("async_ps", 6);
  options.strategy.staleness = 1;
  options.slow_rank = 0;
  options.slow_by = std::chrono::microseconds(1000);
  const auto outcomes = train_all(4, options);
  // Two steps ahead at most, and each of two others' updates.
  const std::string& note = outcomes[0].note;
  INFO(note);
  const auto at = note.find("at most ");
  REQUIRE(at != std::string::npos);
  const int oldest = std::stoi(note.substr(at + 8));
  CHECK(oldest >= 1);
  CHECK(oldest <= 6);
  CHECK(outcomes[0].epochs.back().accuracy > 0.85);
}

TEST_CASE("mixed precision stays near float32, in half the bytes") {
  TrainOptions options = options_of("fsdp", 3);
  const Outcome whole = train_all(2, options)[0];
  options.strategy.precision = DataType::kBfloat16;
  const auto half = train_all(2, options);
  CHECK(half[0].weights == half[1].weights);
  CHECK(half[0].weights != whole.weights);
  CHECK(half[0].epochs.back().accuracy > whole.epochs.back().accuracy - 0.03);
  CHECK(half[0].epochs.back().bytes == Approx(whole.epochs.back().bytes / 2).epsilon(0.01));
}

TEST_CASE("units that stay gathered are not gathered again") {
  TrainOptions options = even_layers("fsdp");
  const Outcome again = train_all(2, options)[0];
  options.strategy.reshard = false;
  const Outcome kept = train_all(2, options)[0];
  CHECK(distance(kept.weights, again.weights) == 0);
  CHECK(kept.epochs.back().bytes == Approx(again.epochs.back().bytes * 2 / 3).epsilon(0.03));
  CHECK(kept.memory.most(Holds::kTransient) > 3 * again.memory.most(Holds::kTransient));
}

TEST_CASE("Adasum averages what is parallel and adds what is orthogonal") {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          Traffic traffic(comm);
          const bool first = comm.rank().value == 0;
          // Two units: the same on both ranks, and at a right angle.
          std::vector<float> data{2, 4, first ? 3.0F : 0.0F, first ? 0.0F : 5.0F}, scratch(4);
          const std::vector<std::size_t> sizes{2, 2};
          const Status status = adasum(traffic, data, scratch, sizes);
          if (!status) return status.error().to_string();
          return data == std::vector<float>{2, 4, 3, 5} ? "" : "other values";
        }) == "");
  TrainOptions options = options_of("horovod", 6);
  options.strategy.adasum = true;
  options.rate.peak = 0.05;
  const auto outcomes = train_all(2, options);
  CHECK(outcomes[0].weights == outcomes[1].weights);
  CHECK(outcomes[0].epochs.back().accuracy > 0.9);
}

TEST_CASE("ranks may leave blocks out if DDP is told so, and not else") {
  auto text = read_text(default_text_path());
  REQUIRE(text);
  const Split data = split(*text, 1);
  TrainOptions options = options_of("ddp");
  options.model = {.name = "transformer", .width = 16, .depth = 2};
  options.drop_units = 0.5;
  options.rate.warm_up_epochs = 0.3;
  options.epochs = 2;
  options.strategy.optimiser.name = "adam";
  options.strategy.find_unused = true;
  const auto outcomes = train_all(2, options, data);
  CHECK(outcomes[0].weights == outcomes[1].weights);
  CHECK(outcomes[0].epochs.back().accuracy > 0.12);  // More than blanks alone.
  options.strategy.find_unused = false;
  CHECK_FALSE(check_options(options));
}

TEST_CASE("normalising over the batch of all ranks makes the number of ranks not matter") {
  TrainOptions options = options_of("ddp");
  options.model.name = "conv";
  const std::vector<float> one = train_all(1, options)[0].weights;
  CHECK(distance(train_all(2, options)[0].weights, one) == 0);
  options.sync_batch_norm = false;
  options.strategy.broadcast_buffers = true;
  const auto own = train_all(2, options);
  CHECK(distance(own[0].weights, one) > 1e-3);
  CHECK(own[0].weights == own[1].weights);
}

TEST_CASE("optimisers by unit give the weights of one process, to rounding") {
  for (const char* optimiser : {"lars", "lamb"}) {
    TrainOptions options = options_of("ddp");
    options.strategy.optimiser.name = optimiser;
    const std::vector<float> one = train_all(1, options)[0].weights;
    for (const char* strategy : {"ddp", "zero1", "zero3", "fsdp"}) {
      options.strategy.name = strategy;
      INFO(strategy << " with " << optimiser);
      CHECK(distance(train_all(2, options)[0].weights, one) < 1e-3);
    }
  }
}

TEST_CASE("a rank holds what ZeRO's arithmetic says, within 10 %") {
  // Bytes for each parameter, in float32 with Adam, on N = 4 ranks: weights, gradients, moments.
  const std::map<std::string, double> formulas{
      {"ddp", 4 + 4 + 8},           {"horovod", 4 + 4 + 8},
      {"zero1", 4 + 4 + 8 / 4.0},   {"zero2", 4 + 4 / 4.0 + 8 / 4.0},
      {"zero3", (4 + 4 + 8) / 4.0}, {"fsdp", (4 + 4 + 8) / 4.0}};
  for (const auto& [strategy, bytes] : formulas) {
    const Outcome outcome = train_all(4, even_layers(strategy))[0];
    const auto size = static_cast<double>(outcome.weights.size());
    INFO(strategy);
    CHECK(static_cast<double>(outcome.memory.model_states()) / size == Approx(bytes).epsilon(0.1));
  }
}

TEST_CASE("a rank sends what the formulas say, exactly") {
  const std::map<std::string, double> formulas{{"ddp", 2 * 3 / 4.0},
                                               {"zero1", 2 * 3 / 4.0},
                                               {"zero2", 2 * 3 / 4.0},
                                               {"zero3", 3 * 3 / 4.0},
                                               {"gossip", 1}};
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
    TrainOptions options = options_of(info.name, 6);
    options.slices = 2;
    const auto outcomes = train_all(2, options);
    CHECK(outcomes[0].epochs.back().accuracy >= 0.92);
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

TEST_CASE("gossip between two ranks is an average in each step") {
  TrainOptions options = options_of("gossip");
  const auto gossip = train_all(2, options);
  options.strategy.name = "local";
  options.strategy.local_steps = 1;
  CHECK(distance(gossip[0].weights, train_all(2, options)[0].weights) < 1e-5);
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
