// Trees packed on machines: against the bounds, the optimum where it is known, and what the best
// of the other algorithms makes of the same links.
#include "planner/machine_trees.h"

#include <algorithm>
#include <limits>
#include <random>

#include "plan/structure.h"
#include "planner/simulate/simulate.h"
#include "support/catch.h"
#include "support/topology/topology_graphs.h"
#include "topology/models/model.h"

using namespace tutti;
using planner::MachineCost;
using planner::Simulator;

namespace {

struct Machine {
  topology::Graph graph;
  std::vector<topology::NodeId> ranks;
};

Machine model_of(const std::string& name, int ranks) {
  auto graph = topology::model(name);
  REQUIRE(graph);
  Machine machine{*std::move(graph), {}};
  machine.ranks = topology::default_endpoints(machine.graph);
  machine.ranks.resize(static_cast<std::size_t>(ranks));
  return machine;
}

// GPUs with NVLinks of 1 to 3 times 25 GB/s, the same both ways, from each to some others.
Machine mesh(std::mt19937& random, int gpus) {
  using namespace topology;
  Machine machine;
  const NodeId host = test::add(machine.graph, NodeKind::kHost, "host0");
  for (int i = 0; i < gpus; ++i) {
    machine.ranks.push_back(
        test::add(machine.graph, NodeKind::kGpu, "host0/gpu" + std::to_string(i), host));
    for (int other = 0; other < i; ++other) {
      if (other + 1 == i || random() % 2 == 0)
        test::join(machine.graph, LinkKind::kNvlink, machine.ranks[static_cast<std::size_t>(other)],
                   machine.ranks.back(), 25.0 * static_cast<double>(1 + random() % 3));
    }
  }
  return machine;
}

// GB/s of the message that the trees carry together.
double rate(const std::vector<plan::SpanningTree>& trees, Collective collective,
            const plan::CostModel& model) {
  std::vector<double> loads(model.resources.size());
  double weights = 0, busiest = 0;
  for (const plan::SpanningTree& tree : trees) {
    weights += tree.weight;
    for (int child = 0; child < static_cast<int>(tree.parents.size()); ++child) {
      const int parent = tree.parents[static_cast<std::size_t>(child)];
      if (parent == child) continue;
      const auto load = [&](int from, int to) {
        const plan::Path path = model.link(Rank{from}, Rank{to});
        REQUIRE_FALSE(path.uses.empty());
        for (const plan::Use& use : path.uses) loads[use.resource] += tree.weight * use.share;
      };
      if (collective != Collective::kReduce) load(parent, child);
      if (collective != Collective::kBroadcast) load(child, parent);
    }
  }
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const double limit = model.resources[i].gigabytes_per_second;
    if (limit > 0) busiest = std::max(busiest, loads[i] / limit);
  }
  return weights / busiest;
}

struct Packed {
  std::vector<plan::SpanningTree> trees;
  double rate = 0, bound = 0;  // GB/s.
};

Packed pack(const Machine& machine, Collective collective, int root) {
  MachineCost cost(machine.graph, machine.ranks);
  const plan::CostModel model = cost.model(*planner::find_protocol("simple"));
  const auto ranks = static_cast<int>(machine.ranks.size());
  Packed packed{planner::trees_for({collective, ranks, root}, model), 0, 0};
  if (packed.trees.empty()) return packed;
  CHECK(packed.trees == planner::trees_for({collective, ranks, root}, model));
  for (const plan::SpanningTree& tree : packed.trees) {
    const int found = plan::root_of(tree, ranks);
    CHECK((collective == Collective::kAllReduce ? found >= 0 : found == root));
  }
  packed.rate = rate(packed.trees, collective, model);
  const bool both = collective == Collective::kAllReduce;
  const auto bound = topology::bound(
      machine.graph, both ? topology::Pattern::kAllReduce : topology::Pattern::kBroadcast,
      machine.ranks, {.root = static_cast<std::size_t>(root)});
  REQUIRE(bound);
  packed.bound = bound->gigabytes_per_second();
  return packed;
}

constexpr Collective kCollectives[] = {Collective::kBroadcast, Collective::kReduce,
                                       Collective::kAllReduce};

}  // namespace

TEST_CASE("on meshes of any links trees come near the bound, and never beyond") {
  std::mt19937 random(Catch::rngSeed());
  INFO("--rng-seed " << Catch::rngSeed());
  int packings = 0;
  for (int round = 0; round < 30; ++round) {
    const int gpus = std::uniform_int_distribution(2, 9)(random);
    const Machine machine = mesh(random, gpus);
    const int root = std::uniform_int_distribution(0, gpus - 1)(random);
    for (const Collective collective : kCollectives) {
      INFO(to_string(collective) << ", " << gpus << " GPUs, root " << root);
      const Packed packed = pack(machine, collective, root);
      if (packed.trees.empty()) continue;  // A direct exchange does as well.
      ++packings;
      CHECK(packed.rate <= packed.bound * (1 + 1e-6));
      // With links as fast back as forth, trees from a root reach its bound exactly (Edmonds 1973),
      // and those for both ways at least half of theirs (Nash-Williams 1961).
      CHECK(packed.rate >= packed.bound * (collective == Collective::kAllReduce ? 0.49 : 0.8));
    }
  }
  CHECK(packings > 30);
}

TEST_CASE("where links do not join all ranks there are no trees") {
  std::mt19937 random(Catch::rngSeed());
  INFO("--rng-seed " << Catch::rngSeed());
  for (int round = 0; round < 20; ++round) {
    // Two meshes side by side, of 1 to 5 ranks each.
    const int first = std::uniform_int_distribution(1, 5)(random),
              ranks = first + std::uniform_int_distribution(1, 5)(random);
    plan::CostModel model;
    model.resources.push_back({.gigabytes_per_second = 20});
    model.link = [first](Rank from, Rank to) {
      const bool joined = (from.value < first) == (to.value < first);
      return joined ? plan::Path({}, {{0, 1}}) : plan::Path();
    };
    for (const Collective collective : kCollectives) {
      for (int root = 0; root < ranks; ++root)
        CHECK(planner::trees_for({collective, ranks, root}, model).empty());
    }
  }
}

// The optima were found by a linear programme over all trees.
TEST_CASE("on the GPUs of a DGX-1 trees are within 6 % of the optimum") {
  const double broadcast[] = {80, 46, 63, 83, 121.5}, all_reduce[] = {60, 46, 53, 61, 69.43};
  for (int gpus = 4; gpus <= 8; ++gpus) {
    const Machine machine = model_of("dgx1-v100", gpus);
    INFO(gpus << " GPUs");
    REQUIRE_FALSE(pack(machine, Collective::kReduce, 0).trees.empty());
    const double one = pack(machine, Collective::kBroadcast, 0).rate,
                 both = pack(machine, Collective::kAllReduce, 0).rate;
    CHECK(one <= broadcast[gpus - 4] * 1.0001);
    CHECK(one >= broadcast[gpus - 4] * 0.94);
    CHECK(both <= all_reduce[gpus - 4] * 1.0001);
    CHECK(both >= all_reduce[gpus - 4] * 0.94);
  }
}

TEST_CASE("trees are for few ranks, and for three collectives") {
  const Machine machine = model_of("hgx-h100:5", planner::kMostPacked + 1);
  MachineCost cost(machine.graph, machine.ranks);
  const plan::CostModel model = cost.model(*planner::find_protocol("simple"));
  CHECK(planner::trees_for({Collective::kBroadcast, planner::kMostPacked + 1}, model).empty());
  CHECK(planner::trees_for({Collective::kBroadcast, 1}, model).empty());
  CHECK(planner::trees_for({Collective::kAllGather, 8}, model).empty());
  CHECK_FALSE(planner::trees_for({Collective::kBroadcast, 8}, model).empty());
}

TEST_CASE("where a job has 5, 6 or 7 GPUs of a DGX-1 packed trees are the fastest") {
  for (const Collective collective : kCollectives) {
    for (int gpus = 5; gpus <= 7; ++gpus) {
      const Machine machine = model_of("dgx1-v100", gpus);
      planner::SimulateOptions options;
      options.collective = collective;
      options.contract = Contract::kRelaxed;
      Simulator simulator(machine.graph, machine.ranks, options);
      double packed = 0, others = std::numeric_limits<double>::infinity();
      for (const Algorithm* algorithm : simulator.candidates()) {
        const auto sample =
            simulator.run(*algorithm, *planner::find_protocol("simple"), std::size_t{1} << 30);
        REQUIRE(sample);
        double& time = algorithm->name == "packed_trees" ? packed : others;
        time = std::min(time == 0 ? sample->microseconds : time, sample->microseconds);
      }
      INFO(to_string(collective) << ", " << gpus << " GPUs: " << packed << " us, others "
                                 << others);
      CHECK(packed > 0);
      CHECK(packed * (gpus == 7 ? 1.02 : 1.13) < others);
    }
  }
}
