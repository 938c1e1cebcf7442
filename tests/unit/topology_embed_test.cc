// Embeddings: rings over the machines of the registry and random parts of them, judged by load()
// alone; and what load() refuses.
#include "topology/embed.h"

#include <algorithm>
#include <random>

#include "support/catch.h"
#include "support/topology_graphs.h"
#include "topology/embed_rings.h"
#include "topology/model.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;

Graph machine(std::string_view spec) {
  auto graph = model(spec);
  REQUIRE(graph);
  return *std::move(graph);
}

bool same(const Embedding& a, const Embedding& b) {
  return a.lanes.size() == b.lanes.size() &&
         std::equal(a.lanes.begin(), a.lanes.end(), b.lanes.begin(),
                    [](const Lane& x, const Lane& y) {
                      return x.order == y.order && x.hops == y.hops &&
                             x.gigabytes_per_second == y.gigabytes_per_second;
                    });
}

// What holds for every embedding; returns it.
Embedding checked(const Graph& graph, std::vector<NodeId> endpoints) {
  auto found = embed(graph, endpoints);
  INFO((found ? "" : found.error().what));
  REQUIRE(found);
  std::sort(endpoints.begin(), endpoints.end());
  for (const Lane& lane : found->lanes) {
    auto order = lane.order;
    std::sort(order.begin(), order.end());
    REQUIRE(order == endpoints);
  }
  const auto loads = load(graph, *found);
  INFO((loads ? "" : loads.error().what));
  REQUIRE(loads);
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const Link& link = graph.links[i];
    REQUIRE((!link.forward.known() || loads->links[i].forward <= link.forward.value * (1 + 1e-9)));
    REQUIRE(
        (!link.backward.known() || loads->links[i].backward <= link.backward.value * (1 + 1e-9)));
  }
  REQUIRE(loads->gigabytes_per_second == Approx(found->gigabytes_per_second).epsilon(1e-9));
  // No lane beats what no algorithm beats; bounds round bandwidths to whole MB/s.
  REQUIRE(found->gigabytes_per_second <= found->bound.gigabytes_per_second() * 1.0001);
  REQUIRE(found->gigabytes_per_second <= found->bound_of_kinds.gigabytes_per_second() * 1.0001);
  REQUIRE(
      (found->share > 0 && found->share <= found->share_of_kinds && found->share_of_kinds <= 1));
  REQUIRE(
      (found->ring_limit == 0 || found->gigabytes_per_second <= found->ring_limit * (1 + 1e-6)));
  REQUIRE(found->report.size() >= (found->share_of_kinds < 0.95 ? 4 : 2));
  return *std::move(found);
}

}  // namespace

TEST_CASE("Embedding: rings on every model, with 1, 2 and 4 hosts") {
  for (const Model* each : models()) {
    for (const int size : {1, 2, 4}) {
      const std::string spec = std::string(each->name) + ":" + std::to_string(size);
      CAPTURE(spec);
      const Graph graph = machine(spec);
      checked(graph, default_endpoints(graph));
    }
  }
}

TEST_CASE("Embedding: single hosts with fast links, and some clusters, come near the bound") {
  for (const std::string_view spec :
       {"dgx1-v100", "dgx2", "dgx-a100", "hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72",
        "mi300x", "p4d", "p5", "mi300x:2", "mi300x:4", "pcie-8:2", "cpu-2s:4"}) {
    CAPTURE(spec);
    const Graph graph = machine(spec);
    CHECK(checked(graph, default_endpoints(graph)).share_of_kinds >= 0.95);
  }
}

TEST_CASE("Embedding: DGX-1 is six rings that use all NVLinks, MI300X seven") {
  const Graph dgx1 = machine("dgx1-v100"), mi300x = machine("mi300x");
  const Embedding six = checked(dgx1, default_endpoints(dgx1));
  CHECK(six.lanes.size() == 6);
  CHECK(six.kinds == std::vector{LinkKind::kNvlink});
  CHECK(six.gigabytes_per_second == Approx(120.0 * 8 / 7));
  const auto loads = load(dgx1, six);
  REQUIRE(loads);
  for (std::size_t i = 0; i < dgx1.links.size(); ++i) {
    if (dgx1.links[i].kind != LinkKind::kNvlink) continue;
    CHECK(loads->links[i].forward == Approx(dgx1.links[i].forward.value));
    CHECK(loads->links[i].backward == Approx(dgx1.links[i].backward.value));
  }
  const Embedding seven = checked(mi300x, default_endpoints(mi300x));
  CHECK(seven.lanes.size() == 7);
  CHECK(seven.gigabytes_per_second == Approx(7.0 * 48 * 8 / 7));
}

TEST_CASE("Embedding: rails of an even number of hosts cross no spine") {
  const Graph graph = machine("hgx-h100:4");
  const Embedding found = checked(graph, default_endpoints(graph));
  CHECK(found.lanes.size() == 8);
  CHECK(std::find(found.kinds.begin(), found.kinds.end(), LinkKind::kPort) != found.kinds.end());
  CHECK(std::find(found.kinds.begin(), found.kinds.end(), LinkKind::kNetwork) == found.kinds.end());
}

TEST_CASE("Embedding: where NICs are the limit, rings reach what rings can") {
  // Of the bound of 96 GB/s that four NICs of 12 allow two hosts, rings can have 48 * 16 / 15.
  for (const std::string_view spec : {"dgx1-v100:2", "p4d:2", "hgx-b200:4", "dgx-a100:3"}) {
    CAPTURE(spec);
    const Graph graph = machine(spec);
    const Embedding found = checked(graph, default_endpoints(graph));
    CHECK(found.ring_limit > 0);
    CHECK(found.gigabytes_per_second >= 0.99 * found.ring_limit);
    CHECK(found.share_of_kinds < 0.95);
    CHECK_THAT(found.report.back(), Catch::Matchers::Contains("no rings gather more"));
  }
  const Graph graph = machine("dgx1-v100:2");
  CHECK(checked(graph, default_endpoints(graph)).ring_limit == Approx(51.2));
}

TEST_CASE("Embedding: random parts of machines, the same twice") {
  std::mt19937 random(7);
  for (const std::string_view spec :
       {"dgx1-v100", "mi300x", "hgx-h100:3", "pcie-8:2", "dgx1-v100:2", "gb200-nvl72", "p5:2"}) {
    const Graph graph = machine(spec);
    for (int round = 0; round < 6; ++round) {
      auto all = default_endpoints(graph);
      const std::size_t size = 2 + random() % (all.size() - 1);
      for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random() % i]);
      all.resize(size);
      CAPTURE(spec, round, size);
      const Embedding first = checked(graph, all);
      const auto second = embed(graph, all);
      REQUIRE(second);
      CHECK(same(first, *second));
    }
  }
}

TEST_CASE("Embedding: load() refuses what is no embedding") {
  const Graph graph = machine("dgx1-v100");
  const Embedding good = checked(graph, default_endpoints(graph));
  const auto refused = [&](auto&& change, std::string_view why) {
    Embedding bad = good;
    change(bad);
    const auto result = load(graph, bad);
    REQUIRE(!result);
    CHECK(result.error().code == Code::kInvalidPlan);
    CHECK_THAT(result.error().what, Catch::Matchers::Contains(std::string(why)));
  };
  refused([](Embedding& e) { e.lanes.clear(); }, "no lanes");
  refused([](Embedding& e) { e.lanes[1].order[2] = e.lanes[1].order[3]; }, "each once");
  refused([](Embedding& e) { e.lanes[0].hops.pop_back(); }, "a hop for each");
  refused([](Embedding& e) { e.lanes[0].gigabytes_per_second = 0; }, "not positive");
  refused([](Embedding& e) { e.lanes[0].hops[0] = 100000; }, "no route");
  refused([](Embedding& e) { std::swap(e.lanes[0].order[0], e.lanes[0].order[1]); }, "loses");
  refused([](Embedding& e) { e.routes[e.lanes[0].hops[0]][0].share = 0.5; }, "loses");
  refused([](Embedding& e) { e.routes[e.lanes[0].hops[0]][0].link = 100000; }, "no link");
  refused([](Embedding& e) { e.routes[e.lanes[0].hops[0]].clear(); }, "loses");
}

TEST_CASE("Embedding: load() by hand") {
  // Three in a triangle of 10, 10 and 4 GB/s: a ring in each direction, and both are held by 4.
  Graph graph;
  const NodeId a = add(graph, NodeKind::kGpu, "a"), b = add(graph, NodeKind::kGpu, "b"),
               c = add(graph, NodeKind::kGpu, "c");
  join(graph, LinkKind::kNvlink, a, b, 10);
  join(graph, LinkKind::kNvlink, b, c, 10);
  join(graph, LinkKind::kNvlink, c, a, 4);
  Embedding embedding;
  embedding.routes = {{{0, true, 1}},  {{1, true, 1}},  {{2, true, 1}},
                      {{0, false, 1}}, {{1, false, 1}}, {{2, false, 1}}};
  embedding.lanes = {{{a, b, c}, {0, 1, 2}, 5}, {{b, a, c}, {3, 5, 4}, 3}};
  const auto loads = load(graph, embedding);
  REQUIRE(loads);
  CHECK(loads->links[0].forward == 5);
  CHECK(loads->links[2].backward == 3);
  CHECK(loads->busiest == Approx(5.0 / 4));
  CHECK(loads->bottleneck.link == 2);
  CHECK(loads->bottleneck.forward);
  CHECK(loads->gigabytes_per_second == Approx(8 / 1.25 * 3 / 2));
  // Packed: 4 each way.
  CHECK(checked(graph, {a, b, c}).gigabytes_per_second == Approx(8 * 1.5));
}

TEST_CASE("Embedding: endpoints that only another GPU joins have no ring") {
  Graph graph;
  const NodeId a = add(graph, NodeKind::kGpu, "a"), b = add(graph, NodeKind::kGpu, "b"),
               c = add(graph, NodeKind::kGpu, "c");
  join(graph, LinkKind::kNvlink, a, b, 10);
  join(graph, LinkKind::kNvlink, b, c, 10);
  const auto found = embed(graph, std::vector{a, b, c});
  REQUIRE(!found);
  CHECK_THAT(found.error().what, Catch::Matchers::Contains("no ring"));
  CHECK(!embed(graph, std::vector{a}));
}

TEST_CASE("Embedding: packed rings are the optimum, where one weight does not do") {
  // Four places, all joined, 3 a hop: no three rings share nothing, but six halves reach 9.
  RingProblem problem;
  problem.places = 4;
  problem.ways.resize(16);
  for (std::uint32_t from = 0; from < 4; ++from) {
    for (std::uint32_t to = 0; to < 4; ++to) {
      if (from == to) continue;
      problem.ways[from * 4 + to].push_back(
          {0, {{static_cast<std::uint32_t>(problem.capacities.size()), 1}}});
      problem.capacities.push_back(3);
    }
  }
  double sum = 0;
  std::vector<double> loads(problem.capacities.size());
  for (const PackedRing& ring : pack_rings(problem)) {
    sum += ring.weight;
    for (std::size_t i = 0; i < 4; ++i) {
      const auto& hop = problem.at(ring.order[i], ring.order[(i + 1) % 4]);
      loads[hop[ring.ways[i]].uses[0].resource] += ring.weight;
    }
  }
  CHECK(sum == Approx(9).epsilon(1e-5));
  CHECK(*std::max_element(loads.begin(), loads.end()) <= 3 * (1 + 1e-6));
}

}  // namespace tutti::topology
