// The simulator against what must hold on any machine, and against closed forms.
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "planner/planner.h"
#include "planner/simulate/simulate.h"
#include "support/catch.h"
#include "support/sample.h"
#include "support/topology/topology_graphs.h"
#include "topology/embedding/routes.h"
#include "topology/models/model.h"

using namespace tutti;
using planner::Protocol;
using planner::SimulateOptions;
using planner::Simulator;
using test::kSanitized;
using test::Sample;

namespace {

constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduceScatter,
                                  Collective::kAllGather, Collective::kBroadcast};

topology::Graph model(const std::string& spec) {
  auto graph = topology::model(spec);
  REQUIRE(graph);
  return *std::move(graph);
}

SimulateOptions relaxed(Collective collective, bool symmetry = true) {
  SimulateOptions options;
  options.collective = collective;
  options.contract = Contract::kRelaxed;
  options.symmetry = symmetry;
  return options;
}
// Fewer events: where it does not matter whether all latency is hidden.
SimulateOptions quick(Collective collective, bool symmetry = true) {
  SimulateOptions options = relaxed(collective, symmetry);
  options.channels = 2;
  return options;
}

const Protocol& protocol(std::string_view name) {
  const Protocol* found = planner::find_protocol(name);
  REQUIRE(found != nullptr);
  return *found;
}

double time_of(Simulator& simulator, Collective collective, std::string_view name,
               const Protocol& with, std::size_t bytes) {
  const Algorithm* algorithm = find_algorithm(collective, name);
  REQUIRE(algorithm != nullptr);
  const auto sample = simulator.run(*algorithm, with, bytes);
  REQUIRE(sample);
  return sample->microseconds;
}

// Rank 2k sends its input to rank 2k + 1.
plan::Plan pairs(int ranks) {
  plan::Plan plan{.name = "pairs",
                  .shape = {Collective::kBroadcast, ranks, 0, 1},
                  .contract = Contract::kDeterministic,
                  .pieces = 1,
                  .ranks = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    plan::Builder builder(plan.shape, 1);
    const bool sends = rank % 2 == 0;
    builder.move(0, {sends ? builder.input(0) : builder.from(rank - 1, Form::kResult)},
                 {sends ? builder.to(rank + 1, Form::kResult) : builder.output(0)});
    plan.ranks.push_back(std::move(builder).finish());
  }
  return plan;
}

}  // namespace

TEST_CASE("two flows on one link take twice the time, on two links they do not") {
  constexpr std::size_t kCount = 250'000;  // A megabyte of float32: a millisecond at 1 GB/s.
  for (const int flows : {1, 2, 5}) {
    for (const bool shared : {true, false}) {
      plan::CostModel model;
      model.reduce_gigabytes_per_second = 0;
      model.step_us = 0;
      model.resources.assign(static_cast<std::size_t>(flows), {.gigabytes_per_second = 1});
      model.link = [&](Rank from, Rank) {
        const auto own = static_cast<std::uint32_t>(from.value / 2 % flows);
        return plan::Path(LinkCost{}, {{shared ? 0 : own, 1.0}});
      };
      const auto found =
          plan::Estimator(pairs(2 * flows), model, DataType::kFloat32, 1 << 16, 4).run(kCount);
      INFO(flows << " flows, shared " << shared);
      CHECK(found.microseconds == Approx(shared ? 1000.0 * flows : 1000));
      REQUIRE(found.busy_us.size() == static_cast<std::size_t>(flows));
      CHECK(found.busy_us[0] == Approx(shared ? 1000.0 * flows : 1000));
    }
  }
}

TEST_CASE("nothing is faster than the bound, and larger messages never take less") {
  std::mt19937 random(Catch::rngSeed());
  for (const topology::Model* each : topology::models()) {
    const bool rack = each->name == "gb200-nvl72";  // 72 ranks: one host's worth is enough.
    const bool small = each->name == "pcie-4" || each->name == "cpu-2s" || each->name == "p5";
    for (const char* size : {":1", ":2"}) {
      if (!small && std::string(size) == ":2") continue;
      const topology::Graph graph = model(std::string(each->name) + size);
      auto endpoints = topology::default_endpoints(graph);
      if (rack) endpoints.resize(8);
      for (const Collective collective : kCollectives) {
        SimulateOptions options = quick(collective);
        const auto last = static_cast<int>(endpoints.size()) - 1;
        if (has_root(collective)) options.root = std::uniform_int_distribution(0, last)(random);
        Simulator simulator(graph, endpoints, options);
        Sample sample;
        for (const Algorithm* algorithm : simulator.candidates()) {
          for (const Protocol& with : planner::protocols()) {
            // The others differ from these in numbers only.
            if (!simulator.machine().has(with) || with.name.starts_with("ll")) continue;
            sample.add("", [&, algorithm] {
              double before = 0;
              for (const std::size_t bytes : {8u, 100'000u, 1u << 31}) {
                INFO(each->name << size << " " << to_string(collective) << " " << algorithm->name
                                << " " << with.name << " " << bytes << " bytes, root "
                                << options.root);
                const auto found = simulator.run(*algorithm, with, bytes);
                REQUIRE(found);
                const auto bound = simulator.bound_us(bytes, with.joins_in_switch);
                REQUIRE(bound);
                CHECK(found->microseconds >= *bound * (1 - 1e-6));
                CHECK(found->microseconds >= simulator.least_us(*algorithm, with, bytes));
                CHECK(found->microseconds >= before * (1 - 1e-6));
                CHECK(found->bottleneck_share() <= 1 + 1e-6);
                before = found->microseconds;
              }
            });
          }
        }
        sample.run(random);
      }
    }
  }
}

TEST_CASE("on one switch a ring and two shots reach their closed forms") {
  constexpr int kRanks = 8;
  constexpr double kRate = 450;
  topology::Graph graph = test::nvswitch_box(kRanks, kRate);
  for (const topology::NodeId gpu : topology::default_endpoints(graph))
    graph[gpu].facts["sm"] = "100";  // Memory that is no bottleneck.
  const Protocol& simple = protocol("simple");
  for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather}) {
    const bool twice = collective == Collective::kAllReduce;
    Simulator simulator(graph, topology::default_endpoints(graph), relaxed(collective));
    constexpr std::size_t kLarge = std::size_t{8} << 30, kSmall = 64 * kRanks * 4;
    const double bytes = (twice ? 2.0 : 1.0) * (kRanks - 1) / kRanks * kLarge;
    for (const char* name : {"ring", twice ? "two_shot" : "direct"}) {
      INFO(to_string(collective) << " " << name);
      const double large = time_of(simulator, collective, name, simple, kLarge);
      CHECK(large == Approx(bytes / (kRate * 1e3)).epsilon(0.03));  // Not all latency is hidden.
    }
    // A latency for each hop, and a cache line over each link.
    const double small = time_of(simulator, collective, "ring", simple, kSmall);
    CHECK(small == Approx(simple.base_us + (twice ? 2 : 1) * (kRanks - 1) * simple.hop_us.nvlink)
                       .epsilon(0.01));
  }
}

TEST_CASE("no chip's memory holds a plan up because it is called otherwise or not known") {
  for (const topology::Model* each : topology::models()) {
    if (each->name == "gb200-nvl72") continue;
    const topology::Graph known = model(std::string(each->name) + ":1");
    const auto endpoints = topology::default_endpoints(known);
    if (known[endpoints[0]].kind != topology::NodeKind::kGpu) continue;
    topology::Graph renamed = known, unknown = known;
    for (const topology::NodeId gpu : endpoints) {
      auto& facts = renamed[gpu].facts;
      if (facts.contains("gfx")) {  // As RCCL's files say it, with compute units as "sm".
        facts["gcn"] = "gfx" + facts["gfx"];
        facts["sm"] = "90";
        facts.erase("gfx");
      }
      for (const char* key : {"sm", "gfx"}) unknown[gpu].facts.erase(key);
    }
    const auto sample_of = [&](const topology::Graph& graph) {
      Simulator simulator(graph, endpoints, quick(Collective::kAllReduce));
      CHECK(simulator.machine().assumed().empty() == (&graph != &unknown));
      const auto sample = simulator.run(*find_algorithm(Collective::kAllReduce, "ring"),
                                        protocol("simple"), std::size_t{64} << 20);
      REQUIRE(sample);
      return *sample;
    };
    INFO(each->name);
    const auto all = sample_of(known);
    CHECK(sample_of(renamed).microseconds == all.microseconds);
    const auto guessed = sample_of(unknown);
    CHECK(guessed.busy[0].kind != "memory");
    CHECK(guessed.microseconds <= all.microseconds * 1.02);  // Ends of the pipeline.
  }
}

TEST_CASE("the order in which a file lists links changes no time") {
  std::mt19937 random(Catch::rngSeed());
  for (const char* spec : {"hgx-h100", "hgx-b200", "dgx-a100", "mi300x"}) {
    const topology::Graph listed = model(std::string(spec) + ":1");
    topology::Graph shuffled = listed;
    std::shuffle(shuffled.links.begin(), shuffled.links.end(), random);
    const auto endpoints = topology::default_endpoints(listed);
    Simulator one(listed, endpoints, quick(Collective::kAllReduce));
    Simulator other(shuffled, endpoints, quick(Collective::kAllReduce));
    for (const Protocol& each : planner::protocols()) {
      if (!one.may_use(each)) continue;
      INFO(spec << " over " << each.name);
      const auto time = [&](Simulator& simulator) {
        return time_of(simulator, Collective::kAllReduce, "two_shot", each, std::size_t{64} << 20);
      };
      CHECK(time(other) == Approx(time(one)));
    }
  }
}

TEST_CASE("with switches that join, two shots send the message once and a share of it") {
  const topology::Graph graph = model("hgx-h100");
  Simulator simulator(graph, topology::default_endpoints(graph), relaxed(Collective::kAllReduce));
  constexpr double kBytes = 64e9, kLinks = 18 * 20.6, kEfficiency = 0.85;
  const double time = time_of(simulator, Collective::kAllReduce, "two_shot", protocol("nvls"),
                              static_cast<std::size_t>(kBytes));
  CHECK(time == Approx(kBytes * (1 + 1.0 / 8) / (kLinks * kEfficiency * 1e3)).epsilon(0.02));
  // Where the contract fixes the order of addition, switches must not choose it.
  SimulateOptions strict = relaxed(Collective::kAllReduce);
  strict.contract = Contract::kDeterministic;
  Simulator careful(graph, topology::default_endpoints(graph), strict);
  const Algorithm* two_shot = find_algorithm(Collective::kAllReduce, "two_shot");
  const Protocol* nvls = &protocol("nvls");
  CHECK_FALSE(careful.run(*two_shot, std::span(&nvls, 1), 1024));
}

TEST_CASE("a few ranks that stand for all give the time of all") {
  const std::map<std::string, int> machines{
      {"hgx-h100:2", 16}, {"p5:3", 24}, {"mi300x:2", 16}, {"cpu-2s:8", 16}};
  int fewer = 0;
  std::mt19937 random(Catch::rngSeed());
  for (const auto& machine : machines) {
    const std::string& spec = machine.first;
    const topology::Graph graph = model(spec);
    const auto endpoints = topology::default_endpoints(graph);
    REQUIRE(endpoints.size() == static_cast<std::size_t>(machine.second));
    for (const Collective collective : kCollectives) {
      Simulator few(graph, endpoints, quick(collective));
      Simulator all(graph, endpoints, quick(collective, false));
      Sample sample;
      for (const Algorithm* algorithm : few.candidates()) {
        for (const Protocol& with : planner::protocols()) {
          if (!few.machine().has(with) || with.name.starts_with("ll")) continue;
          sample.add("", [&, algorithm] {
            for (const std::size_t bytes : {std::size_t{8}, random() % 100'000'000 + 1}) {
              INFO(spec << " " << to_string(collective) << " " << algorithm->name << " "
                        << with.name << " " << bytes << " bytes");
              const auto a = few.run(*algorithm, with, bytes), b = all.run(*algorithm, with, bytes);
              REQUIRE(a);
              REQUIRE(b);
              CHECK(b->simulated_ranks == endpoints.size());
              CHECK(a->microseconds == b->microseconds);
              CHECK(a->bottleneck_share() == b->bottleneck_share());
              if (a->simulated_ranks < endpoints.size()) ++fewer;
            }
          });
        }
      }
      sample.run(random);
    }
  }
  CHECK(fewer > (kSanitized ? 5 : 50));
}

TEST_CASE("ways between hosts are those of the router") {
  // The last ones pass several switches, or leave by one of several NICs.
  for (const char* spec : {"hgx-h100:3", "p5:3", "dgx-a100:2", "pcie-8:3", "cpu-2s:4", "p4d:2",
                           "hgx-h100:3/fat-tree", "hgx-h100:5/fat-tree", "hgx-h100:9/dragonfly/2",
                           "hgx-h100:9/torus", "dgx1-v100:2", "gb200-nvl72:1"}) {
    const topology::Graph graph = model(spec);
    const auto endpoints = topology::default_endpoints(graph);
    planner::MachineCost machine(graph, endpoints);
    topology::Router router(graph);
    const Protocol& any = protocol(machine.has(protocol("simple")) ? "simple" : "host");
    const plan::CostModel costs = machine.model(any);
    for (std::size_t a = 0; a < endpoints.size(); ++a) {
      for (std::size_t b = 0; b < endpoints.size(); ++b) {
        if (a == b) continue;
        INFO(spec << " " << a << " to " << b);
        std::map<std::uint32_t, double> ours, theirs;
        const auto place = [](std::size_t i) { return Rank{static_cast<std::int32_t>(i)}; };
        for (const plan::Use& use : costs.link(place(a), place(b)).uses)
          ours[use.resource] += use.share;
        const auto hop = router.hop(endpoints[a], endpoints[b]);
        REQUIRE(hop);
        for (const topology::EdgeUse& use : router.routes()[*hop])
          theirs[2 * use.link + (use.forward ? 0 : 1)] += use.share;
        REQUIRE(ours.size() == theirs.size());
        for (const auto& [link, share] : ours) CHECK(theirs[link] == Approx(share));
      }
    }
  }
}

TEST_CASE("fewer lanes are taken where messages are short and that is faster") {
  const topology::Graph graph = model("hgx-h100:16");
  const auto endpoints = topology::default_endpoints(graph);
  std::vector<std::unique_ptr<Simulator>> with;  // Up to 1, 2 and 4 lanes on each order.
  for (const std::uint32_t channels : {1U, 2U, 4U}) {
    SimulateOptions options;
    options.channels = channels;
    with.push_back(std::make_unique<Simulator>(graph, endpoints, options));
  }
  int fewer = 0;
  for (const Algorithm* algorithm : with[0]->candidates()) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 18, std::size_t{1} << 21}) {
      INFO(algorithm->name << " " << bytes << " bytes");
      std::optional<planner::Sample> before;
      for (const auto& simulator : with) {
        auto sample = simulator->run(*algorithm, protocol("ll"), bytes);
        REQUIRE(sample);
        const auto plan = simulator->plan_of(*sample);
        REQUIRE(plan);
        CHECK(plan->ranks[0].lanes.size() ==
              sample->lanes * build(*algorithm, sample->shape, Rank{0}).lanes.size());
        const std::size_t piece = bytes / algorithm->pieces(sample->shape);
        if (before && planner::lanes_worth(piece, 2) == 1)
          CHECK(sample->microseconds <= before->microseconds);
        if (sample->lanes < simulator->options().channels) ++fewer;
        before = *std::move(sample);
      }
      plan::Recording recording;
      const auto again = with.back()->run(*algorithm, protocol("ll"), bytes, &recording);
      REQUIRE(again);
      CHECK(again->lanes == before->lanes);
      CHECK(again->microseconds == before->microseconds);
    }
    const auto large = with.back()->run(*algorithm, protocol("ll"), std::size_t{1} << 33);
    REQUIRE(large);
    CHECK(large->lanes % 4 == 0);
  }
  CHECK(fewer > 2);
}

TEST_CASE("what can't be simulated is one line") {
  const topology::Graph large = model("cpu-2s:1024");
  Simulator simulator(large, topology::default_endpoints(large), relaxed(Collective::kBroadcast));
  const auto sample =
      simulator.run(*find_algorithm(Collective::kBroadcast, "ring"), protocol("host"), 1 << 20);
  REQUIRE_FALSE(sample);
  CHECK(sample.error().what.find("choose fewer ranks") != std::string::npos);
  CHECK(sample.error().what.find('\n') == std::string::npos);

  topology::Graph apart = model("pcie-4");
  apart.links.clear();
  Simulator none(apart, topology::default_endpoints(apart), relaxed(Collective::kAllReduce));
  const auto lost =
      none.run(*find_algorithm(Collective::kAllReduce, "ring"), protocol("simple"), 1 << 20);
  REQUIRE_FALSE(lost);
  CHECK(lost.error().what.find("no way leads from") != std::string::npos);
}
