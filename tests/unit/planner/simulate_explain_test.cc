// Explanations against the simulator that they explain.
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "planner/simulate/explain.h"
#include "support/catch.h"
#include "support/sample.h"
#include "topology/models/model.h"

using namespace tutti;
using planner::Contender;
using planner::Explanation;
using planner::Sample;

namespace {

constexpr std::array kModels{"dgx1-v100", "hgx-h100", "pcie-4", "cpu-2s:2", "p5:2"};

topology::Graph model(const std::string& spec) {
  auto graph = topology::model(spec);
  REQUIRE(graph);
  return *std::move(graph);
}

planner::Simulator simulator_of(const topology::Graph& graph, Collective collective,
                                Contract contract) {
  planner::SimulateOptions options;
  options.collective = collective;
  options.contract = contract;
  options.channels = 2;  // Fewer events; what is tested does not depend on it.
  return {graph, topology::default_endpoints(graph), options};
}

// Calls check(simulator, explanation, bytes) for machines, collectives, contracts and sizes.
template <class Check>
void for_each_explanation(Check check) {
  std::mt19937_64 random(Catch::rngSeed());
  for (const char* name : kModels) {
    const topology::Graph graph = model(name);
    test::Sample sample;
    for (const Collective collective :
         {Collective::kAllReduce, Collective::kAllGather, Collective::kBroadcast,
          Collective::kReduce, Collective::kAllToAll}) {
      for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
        sample.add("", [&graph, &check, name, collective, contract] {
          planner::Simulator simulator = simulator_of(graph, collective, contract);
          for (const std::size_t bytes : {std::size_t{8}, std::size_t{3} << 20}) {
            INFO(name << " " << to_string(collective) << " " << bytes << " bytes, "
                      << (contract == Contract::kRelaxed ? "relaxed" : "deterministic"));
            const auto found = planner::explain(simulator, {}, {}, bytes);
            REQUIRE(found);
            check(simulator, *found, bytes);
          }
        });
      }
    }
    sample.run(random);
  }
}

}  // namespace

TEST_CASE("the first candidate is what the simulator finds fastest") {
  for_each_explanation(
      [](planner::Simulator& simulator, const Explanation& found, std::size_t bytes) {
        double least = INFINITY;
        for (const Algorithm* algorithm : simulator.candidates()) {
          for (const planner::Protocol& protocol : planner::protocols()) {
            if (!simulator.may_use(protocol)) continue;
            const auto sample = simulator.run(*algorithm, protocol, bytes);
            REQUIRE(sample);
            least = std::min(least, sample->microseconds);
          }
        }
        REQUIRE_FALSE(found.contenders.front().refused);
        CHECK(found.best().microseconds == least);
        CHECK(found.bound_us <= least * (1 + 1e-6));
      });
}

TEST_CASE("all algorithms are there, in order, each with its reason") {
  for_each_explanation([](planner::Simulator& simulator, const Explanation& found, std::size_t) {
    std::set<const Algorithm*> seen;
    double before = 0;
    bool refused = false;
    for (const Contender& contender : found.contenders) {
      const bool best = &contender == &found.contenders.front();
      INFO(contender.algorithm->name << ": " << contender.why);
      CHECK(contender.why.empty() == best);
      seen.insert(contender.algorithm);
      if (contender.refused && !refused) before = 0;
      CHECK((contender.refused || !refused));  // The refused ones come last.
      refused = contender.refused;
      if (!contender.sample) {
        CHECK(contender.refused);
        continue;
      }
      CHECK(contender.sample->microseconds >= before);
      before = contender.sample->microseconds;
      const bool relaxed =
          contender.algorithm->contract(*simulator.shapes_of(*contender.algorithm)[0]) ==
              Contract::kRelaxed ||
          (contender.sample->protocol->joins_in_switch && reduces(simulator.options().collective));
      CHECK(refused == (relaxed && simulator.options().contract == Contract::kDeterministic));
    }
    for (const Algorithm* algorithm : algorithms())
      CHECK((algorithm->collective != simulator.options().collective || seen.contains(algorithm)));
    CHECK_FALSE(found.consists_of.empty());
    CHECK_FALSE(found.to_be_faster.empty());
  });
}

TEST_CASE("reasons are what the figures say") {
  const topology::Graph graph = model("hgx-h100");
  planner::Simulator simulator = simulator_of(graph, Collective::kAllReduce, Contract::kRelaxed);
  const planner::Protocol* simple = planner::find_protocol("simple");
  const auto why = [&](std::size_t bytes, std::string_view name) {
    const auto found = planner::explain(simulator, {}, std::span(&simple, 1), bytes);
    REQUIRE(found);
    for (const Contender& contender : found->contenders) {
      if (contender.algorithm->name == name) return contender.why;
    }
    return std::string("not there");
  };
  // For 8 bytes a ring has 14 messages one after the other; one shot of 1 GiB sends it all 7 times.
  CHECK_THAT(why(8, "ring"), Catch::Contains("latency: 14 messages"));
  CHECK_THAT(why(std::size_t{1} << 30, "one_shot"), Catch::Contains("sends 4x the bytes over"));
}

TEST_CASE("what can't be explained is one line") {
  const topology::Graph graph = model("hgx-h100");
  planner::Simulator simulator =
      simulator_of(graph, Collective::kAllReduce, Contract::kDeterministic);
  const Algorithm* ring = find_algorithm(Collective::kAllReduce, "ring");
  const planner::Protocol* host = planner::find_protocol("host");
  const auto relaxed = planner::explain(simulator, std::span(&ring, 1), {}, 1 << 20);
  REQUIRE_FALSE(relaxed);
  CHECK_THAT(relaxed.error().what, Catch::Contains("relaxed"));
  const auto nothing = planner::explain(simulator, {}, std::span(&host, 1), 1 << 20);
  REQUIRE_FALSE(nothing);
  CHECK_THAT(nothing.error().what, Catch::Contains("simple"));
}
