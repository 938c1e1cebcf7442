// What ranks on CPUs choose by the graph of their hosts: planner/place_costs.h, weights.h.
#include "planner/place_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "planner/explain.h"
#include "planner/select.h"
#include "planner/weights.h"
#include "support/catch.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"

namespace tutti::planner {
namespace {

using topology::Graph;
using topology::NodeKind;

/// Four hosts of a NIC each on one network; all carry 10 GB/s but the host and the pair that are
/// named. The pair has a link of its own, as `tutti topo measure` writes it.
Graph four_hosts(double last_host, double pair_1_2) {
  std::string text = "tutti topology 1\nplane net\n";
  for (int i = 0; i < 4; ++i) {
    const double rate = i == 3 ? last_host : 10;
    text += fmt::format(
        "host h{0}\nnuma h{0}/n host=h{0}\nnic h{0}/nic host=h{0}\n"
        "pcie h{0}/n h{0}/nic forward=100:table backward=100:table\n"
        "port h{0}/nic net forward={1}:measured backward={1}:measured latency_us=10:measured\n",
        i, rate);
  }
  if (pair_1_2 > 0)
    text +=
        fmt::format("network h1/nic h2/nic forward={0}:measured backward={0}:measured\n", pair_1_2);
  auto graph = topology::parse_graph(text, "test");
  REQUIRE(graph);
  return *std::move(graph);
}

/// A rank on each NUMA node.
struct Placed {
  PlaceCosts places;
  PlannerInputs inputs;
  explicit Placed(const Graph& graph, int ranks_each = 1) {
    const auto shared = std::make_shared<const Graph>(graph);
    std::vector<topology::NodeId> of;
    const auto hosts = graph.all(NodeKind::kHost);
    for (const auto numa : graph.all(NodeKind::kNuma)) {
      for (int i = 0; i < ranks_each; ++i) {
        of.push_back(numa);
        inputs.hosts.of.push_back(static_cast<int>(
            std::find(hosts.begin(), hosts.end(), graph[numa].host) - hosts.begin()));
      }
    }
    if (hosts.size() == 1) inputs.hosts.of.clear();
    inputs.hosts.cost = {{20, 10}, 0.5};
    auto made = place_costs(shared, "topology of test", of, inputs.hosts);
    INFO((made ? "" : made.error().what));
    REQUIRE(made);
    places = *std::move(made);
    inputs.places = &places;
    inputs.usable_cpus = static_cast<int>(of.size());
  }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  int ranks() const { return static_cast<int>(places.of.size()); }
};

TEST_CASE("a rank behind a slow link owns nothing of an all-reduce") {
  const Placed placed(four_hosts(2, 0));
  const auto weights = weights_on(placed.inputs, 4);
  REQUIRE(weights.size() == 4);
  CHECK(weights[3] == 0);
  CHECK(*std::min_element(weights.begin(), weights.begin() + 3) > 0);
}

TEST_CASE("ranks with a slow link between them own less of an all-reduce") {
  const Placed placed(four_hosts(10, 0.5));
  const auto weights = weights_on(placed.inputs, 4);
  REQUIRE(weights.size() == 4);
  // What both own passes the slow link, and half of what the others own their links: best is 2/21.
  CHECK(9 * (weights[1] + weights[2]) <= weights[0] + weights[3] + weights[1] + weights[2]);
  CHECK(weights[1] + weights[2] > 0);
  CHECK(weights[0] == weights[3]);
}

TEST_CASE("hosts that are alike have no weights and no trees") {
  const Placed placed(four_hosts(10, 0));
  CHECK_FALSE(placed.places.differ);
  CHECK(weights_on(placed.inputs, 4).empty());
  CHECK(with_trees({Collective::kBroadcast, 4}, Contract::kRelaxed, placed.inputs).trees.empty());
}

TEST_CASE("trees leave out a slow link") {
  const Placed placed(four_hosts(10, 0.5));
  for (int root = 0; root < 4; ++root) {
    const auto shape =
        with_trees({Collective::kBroadcast, 4, root}, Contract::kRelaxed, placed.inputs);
    REQUIRE_FALSE(shape.trees.empty());
    for (const plan::SpanningTree& tree : shape.trees) {
      CHECK(tree.parents[1] != 2);
      CHECK(tree.parents[2] != 1);
    }
  }
}

/// The most that a link is busy in a direct exchange with these shares.
double busiest(const plan::CostModel& model, const std::vector<int>& shares) {
  std::vector<double> loads(model.resources.size());
  const auto n = static_cast<int>(shares.size());
  double sum = 0;
  for (int owner = 0; owner < n; ++owner) {
    const double share = shares[static_cast<std::size_t>(owner)];
    sum += share;
    for (int rank = 0; rank < n; ++rank) {
      if (rank == owner) continue;
      for (const auto& path :
           {model.link(Rank{rank}, Rank{owner}), model.link(Rank{owner}, Rank{rank})}) {
        for (const plan::Use& use : path.uses)
          loads[use.resource] +=
              share * use.share / model.resources[use.resource].gigabytes_per_second;
      }
    }
  }
  return *std::max_element(loads.begin(), loads.end()) / sum;
}

/// Ranks with an uplink each, and a link of their own for some pairs.
plan::CostModel random_links(int ranks, std::mt19937& random) {
  const auto n = static_cast<std::uint32_t>(ranks);
  plan::CostModel model;
  for (std::uint32_t i = 0; i < 2 * n + n * n; ++i)
    model.resources.push_back({.gigabytes_per_second = 1.0 + static_cast<double>(random() % 20)});
  const std::uint32_t own = random();
  model.link = [n, own](Rank from, Rank to) {
    const auto a = static_cast<std::uint32_t>(from.value), b = static_cast<std::uint32_t>(to.value);
    const std::uint32_t pair = 2 * n + std::min(a, b) * n + std::max(a, b);
    if ((own >> (pair % 31) & 1) != 0) return plan::Path({}, {{pair, 1}});
    return plan::Path({}, {{2 * a, 1}, {2 * b + 1, 1}});
  };
  return model;
}

TEST_CASE("shares never make the busiest link busier than even ones do") {
  std::mt19937 random(Catch::rngSeed());
  int unlike = 0;
  for (int round = 0; round < 60; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 9);
    const plan::CostModel model = random_links(ranks, random);
    const auto shares = shares_for(ranks, model);
    if (shares.empty()) continue;
    ++unlike;
    CAPTURE(round, ranks);
    REQUIRE(shares.size() == static_cast<std::size_t>(ranks));
    CHECK(busiest(model, shares) <=
          0.951 * busiest(model, std::vector<int>(static_cast<std::size_t>(ranks), 1)));
  }
  CHECK(unlike > 20);
}

TEST_CASE("shares are better, in the mean, than the best of up to four steps") {
  std::mt19937 random(1);  // The limit is of these: steps of one size alone reach 0.987.
  constexpr int kRounds = 500;
  double ratio = 0;
  for (int round = 0; round < kRounds; ++round) {
    const int ranks = 3 + static_cast<int>(random() % 2);
    const plan::CostModel model = random_links(ranks, random);
    std::vector<int> any(static_cast<std::size_t>(ranks)), best(any.size(), 1);
    for (bool more = true; more;) {  // Counts in base 5.
      auto digit = any.begin();
      while (digit != any.end() && ++*digit == 5) *digit++ = 0;
      more = digit != any.end();
      if (more && busiest(model, any) < busiest(model, best)) best = any;
    }
    auto shares = shares_for(ranks, model);
    if (shares.empty()) shares.assign(any.size(), 1);
    ratio += busiest(model, shares) / busiest(model, best) / kRounds;
  }
  CHECK(ratio <= 0.984);
}

TEST_CASE("ranks without a way between them have no shares") {
  plan::CostModel model;
  for (const double rate : {1.0, 1.0, 1.0, 9.0})
    model.resources.push_back({.gigabytes_per_second = rate});
  bool joined = true;
  model.link = [&joined](Rank from, Rank to) {
    if (!joined && from.value + to.value == 5) return plan::Path({}, {});
    return plan::Path({}, {{static_cast<std::uint32_t>(from.value), 1}});
  };
  CHECK_FALSE(shares_for(4, model).empty());
  joined = false;
  CHECK(shares_for(4, model).empty());
}

TEST_CASE("NUMA nodes are groups within hosts") {
  const auto text = [] {
    std::string lines = "tutti topology 1\nplane net\n";
    for (int host = 0; host < 2; ++host)
      lines += fmt::format(
          "host h{0}\nnuma h{0}/a host=h{0}\nnuma h{0}/b host=h{0}\nnic h{0}/nic host=h{0}\n"
          "socket h{0}/a h{0}/b forward=20:table backward=20:table\n"
          "pcie h{0}/a h{0}/nic forward=10:table backward=10:table\n"
          "port h{0}/nic net forward=?\n",
          host);
    return lines;
  }();
  const auto graph = topology::parse_graph(text, "test");
  REQUIRE(graph);
  const Placed placed(*graph, 4);
  CHECK(groups_on(placed.inputs, 16).sizes == std::vector{4, 8});
  // What the network carries is not known, so it is what is assumed.
  CHECK(placed.places.network.gigabytes_per_second == 0);
  double slowest = 1e9;
  for (const plan::Use& use : placed.places.between(Rank{0}, Rank{8})) {
    const double rate = placed.places.resources[use.resource].gigabytes_per_second;
    if (rate > 0) slowest = std::min(slowest, rate / use.share);
  }
  CHECK(slowest == 10);
}

TEST_CASE("a graph that does not fit the ranks is not used") {
  const auto graph = std::make_shared<const Graph>(four_hosts(10, 0));
  const auto numa = graph->all(NodeKind::kNuma);
  const auto why = [&](std::vector<topology::NodeId> of, std::vector<int> hosts) {
    const auto made = place_costs(graph, "it", of, {.of = std::move(hosts), .cost = {}});
    return made ? std::string() : made.error().what;
  };
  CHECK(why({numa[0], numa[1]}, {0, 1}).empty());
  CHECK(why({numa[0], numa[0]}, {0, 1}) == "ranks of h0 reach each other over a network");
  Graph apart;
  for (const char* name : {"x", "y"}) {
    const auto host = apart.add({NodeKind::kHost, name});
    apart.add({NodeKind::kNuma, std::string(name) + "/n", host});
  }
  const auto lonely = std::make_shared<const Graph>(apart);
  const auto nodes = lonely->all(NodeKind::kNuma);
  const auto made = place_costs(lonely, "it", nodes, {.of = {0, 1}, .cost = {}});
  REQUIRE_FALSE(made);
  CHECK(made.error().what == "nothing joins x/n and y/n");
}

TEST_CASE("no estimate is faster than the bound") {
  std::vector<std::pair<std::string, Graph>> graphs{{"slow host", four_hosts(2, 0)},
                                                    {"slow pair", four_hosts(10, 0.5)}};
  for (const topology::Model* model : topology::models()) {
    auto made = topology::model(fmt::format("{}:2", model->name));
    if (made) graphs.emplace_back(model->name, *std::move(made));
  }
  std::size_t compared = 0;
  for (const auto& [name, graph] : graphs) {
    if (graph.all(NodeKind::kNuma).size() < 2 || graph.all(NodeKind::kNuma).size() > 16) continue;
    const Placed placed(graph);
    for (int i = 0; i < kCollectiveCount; ++i) {
      Request request;
      request.bytes = std::size_t{64} << 20;
      request.contract = Contract::kRelaxed;
      request.shape =
          with_trees({static_cast<Collective>(i), placed.ranks()}, request.contract, placed.inputs);
      request.shape.groups = groups_on(placed.inputs, placed.ranks());
      request.shape.weights = weights_on(placed.inputs, placed.ranks());
      const auto all = explain(request, placed.inputs);
      REQUIRE(all);
      for (const ExplainedWay& way : all->ways) {
        if (way.candidate.eager || way.candidate.microseconds <= 0) continue;
        CAPTURE(name, to_string(request.shape.collective), way.candidate.name(), all->bound_words);
        CHECK(way.candidate.microseconds >= 0.999 * all->bound_us);
        ++compared;
      }
    }
  }
  CHECK(compared > 200);
}

}  // namespace
}  // namespace tutti::planner
