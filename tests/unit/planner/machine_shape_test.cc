// What a machine says about the shape of a plan, against closed forms and by trying it out.
#include "planner/machine_shape.h"
#include "planner/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "planner/simulate/simulate.h"
#include "support/catch.h"
#include "support/topology/topology_graphs.h"
#include "topology/models/model.h"

using namespace tutti;
using planner::Simulator;

namespace {

// A tree of sums as a number that does not depend on which of two terms is first.
std::uint64_t tree(std::span<const Rank> leaves) {
  const auto mix = [](std::uint64_t x) { return (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL; };
  if (leaves.size() == 1) return mix(static_cast<std::uint64_t>(leaves[0].value) + 1);
  const std::size_t left = std::bit_floor(leaves.size() - 1);
  const std::uint64_t a = tree(leaves.first(left)), b = tree(leaves.subspan(left));
  return mix(mix(a + b) + mix(a ^ b));
}

std::vector<Rank> in_order(int n) {
  std::vector<Rank> ranks;
  for (int i = 0; i < n; ++i) ranks.push_back(Rank{i});
  return ranks;
}

// Hosts of a GPU each on one switch; one has half the rate of the others.
topology::Graph star(int hosts, int slow) {
  using namespace topology;
  Graph graph;
  const NodeId leaf = test::add(graph, NodeKind::kNetworkSwitch, "leaf");
  for (int h = 0; h < hosts; ++h) {
    const std::string name = "host" + std::to_string(h);
    const NodeId host = test::add(graph, NodeKind::kHost, name);
    const NodeId gpu = test::add(graph, NodeKind::kGpu, name + "/gpu0", host);
    const NodeId nic = test::add(graph, NodeKind::kNic, name + "/nic0", host);
    test::join(graph, LinkKind::kPcie, gpu, nic, 48);
    test::join(graph, LinkKind::kPort, nic, leaf, h == slow ? 12.5 : 25);
  }
  return graph;
}

planner::SimulateOptions options_for(Collective collective) {
  planner::SimulateOptions options;
  options.collective = collective;
  return options;
}

planner::Sample fastest(Simulator& simulator, std::string_view name, std::size_t bytes) {
  const Algorithm* algorithm = find_algorithm(simulator.options().collective, name);
  REQUIRE(algorithm != nullptr);
  const auto sample = simulator.run(*algorithm, *planner::find_protocol("simple"), bytes);
  REQUIRE(sample);
  return *sample;
}

}  // namespace

TEST_CASE("rank orders that keep the canonical tree are told from those that don't") {
  std::mt19937 random(Catch::rngSeed());
  for (int n = 2; n <= 33; ++n) {
    CHECK(planner::keeps_canonical_tree(in_order(n)));
    for (int round = 0; round < 200; ++round) {
      std::vector<Rank> order = in_order(n);
      // Half of them by swapping blocks of one size, which often keeps it.
      const int block = 1 << std::uniform_int_distribution(0, 3)(random);
      if (round % 2 == 0) {
        for (int first = 0; first + 2 * block <= n; first += 2 * block) {
          const auto at = order.begin() + first;
          if (random() % 2 == 0) std::rotate(at, at + block, at + 2 * block);
        }
      } else {
        std::shuffle(order.begin(), order.begin() + std::min(n, 2 * block), random);
      }
      CHECK(planner::keeps_canonical_tree(order) == (tree(order) == tree(in_order(n))));
    }
  }
}

TEST_CASE("weights reach nearly what a direct exchange between unlike ranks can") {
  std::mt19937 random(Catch::rngSeed());
  for (int round = 0; round < 500; ++round) {
    const int n = std::uniform_int_distribution(3, 40)(random);
    std::vector<double> us;
    for (int i = 0; i < n; ++i)
      us.push_back(std::exp2(std::uniform_real_distribution(0., 2.)(random)));
    const auto star = [](const std::vector<double>& times) {
      plan::CostModel model;  // A link out of each, and one in.
      for (const double time : times) {
        for (int i = 0; i < 2; ++i) model.resources.push_back({.gigabytes_per_second = 1 / time});
      }
      model.link = [](Rank from, Rank to) {
        return plan::Path({}, {{2 * static_cast<std::uint32_t>(from.value), 1},
                               {2 * static_cast<std::uint32_t>(to.value) + 1, 1}});
      };
      return planner::shares_for(static_cast<int>(times.size()), model);
    };
    const std::vector<int> weights = star(us);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    // The message in units of what everyone sends if shares are equal: 2(n-1)/n.
    double rates = 0, slowest = 0, equal = 0, weighted = 0;
    for (int i = 0; i < n; ++i) {
      const double time = us[static_cast<std::size_t>(i)];
      const double share = weights.empty() ? 1.0 / n : weights[static_cast<std::size_t>(i)] / sum;
      rates += 1 / time;
      slowest = std::max(slowest, time);
      equal = std::max(equal, time * 2 * (n - 1) / n);
      weighted = std::max(weighted, time * (1 + (n - 2) * share));
    }
    const double least = std::max(slowest, 2 * (n - 1) / rates);
    INFO(n << " ranks, round " << round);
    CHECK(weighted <= 1.25 * least);  // Weights are small whole numbers.
    CHECK(weighted <= equal * 1.0001);
    CHECK(star(std::vector<double>(static_cast<std::size_t>(n), us[0])).empty());
  }
}

TEST_CASE("one slow host of 8 owns nothing, which is 1.6 times as fast as equal shares") {
  std::mt19937 random(Catch::rngSeed());
  const int slow = std::uniform_int_distribution(0, 7)(random);
  const topology::Graph graph = star(8, slow);
  Simulator simulator(graph, topology::default_endpoints(graph),
                      options_for(Collective::kAllReduce));
  std::vector<int> expected(8, 1);
  expected[static_cast<std::size_t>(slow)] = 0;
  CHECK(simulator.shape().weights == expected);
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  CHECK(fastest(simulator, "two_shot", kBytes).microseconds >=
        1.6 * fastest(simulator, "weighted", kBytes).microseconds);
}

TEST_CASE("where ranks of a host are near each other, groups of them keep to near links") {
  constexpr std::size_t kBytes = std::size_t{1} << 28;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kAllToAll}) {
    const topology::Graph graph = *topology::model("dgx1-v100");
    Simulator simulator(graph, topology::default_endpoints(graph), options_for(collective));
    const planner::Sample sample = fastest(simulator, "hierarchical", kBytes);
    INFO(to_string(collective));
    CHECK(sample.shape.groups.sizes == std::vector{4});
    for (const planner::Busy& busy : sample.busy)
      CHECK((busy.kind == "nvlink" || busy.kind == "memory"));
    const char* direct = collective == Collective::kAllReduce ? "two_shot" : "direct";
    CHECK(fastest(simulator, direct, kBytes).microseconds > 5 * sample.microseconds);
  }
  for (const auto& [spec, sizes] :
       std::map<std::string, std::vector<std::vector<int>>>{{"hgx-h100", {{8}}},
                                                            {"hgx-h100:2", {{8}}},
                                                            {"pcie-8", {{8}, {4}}},
                                                            {"dgx1-v100:2", {{8}, {4, 8}}},
                                                            {"mi300x", {{8}}}}) {
    const topology::Graph graph = *topology::model(spec);
    planner::MachineCost machine(graph, topology::default_endpoints(graph));
    std::vector<std::vector<int>> found;
    for (const auto& nesting :
         planner::nestings(machine.groups(), machine.model(*planner::find_protocol("simple"))))
      found.push_back(nesting.sizes);
    INFO(spec);
    CHECK(found == sizes);
  }
}

TEST_CASE("lanes on rank orders of rings are for what need not add up in canonical order") {
  const topology::Graph graph = *topology::model("hgx-h100:2");
  const auto endpoints = topology::default_endpoints(graph);
  planner::SimulateOptions options = options_for(Collective::kAllReduce);
  Simulator careful(graph, endpoints, options);
  options.contract = Contract::kRelaxed;
  Simulator relaxed(graph, endpoints, options);
  bool differs = false;
  for (const char* name : {"pat", "halving_doubling", "binomial"}) {
    CHECK(fastest(careful, name, 1 << 20).lanes == 4);
    differs = differs || fastest(relaxed, name, 1 << 20).lanes > 4;
  }
  CHECK(differs);
  CHECK(fastest(careful, "ring", 1 << 20).lanes > 4);  // Relaxed by itself.
}

TEST_CASE("in every rank order the root is at its own place, and neighbours stay neighbours") {
  std::mt19937 random(Catch::rngSeed());
  for (int n = 2; n <= 33; ++n) {
    std::vector<Rank> order = in_order(n);
    std::shuffle(order.begin(), order.end(), random);
    for (int root = 0; root < n; ++root) {
      std::vector<Rank> turned = order;
      planner::put_root(turned, root);
      CHECK(turned[static_cast<std::size_t>(root)] == Rank{root});
      std::rotate(turned.begin(), std::find(turned.begin(), turned.end(), order[0]), turned.end());
      CHECK(turned == order);
    }
  }
}
