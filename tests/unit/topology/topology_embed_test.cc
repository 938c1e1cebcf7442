// Embeddings: rings and trees over the machines of the registry and random parts of them, judged by
// load() and, in another way, by following every block from its root.
#include "topology/embedding/embed.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>

#include "support/catch.h"
#include "support/sample.h"
#include "support/topology/topology_graphs.h"
#include "topology/embedding/rings.h"
#include "topology/models/model.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;
using test::kSanitized;

Graph machine(std::string_view spec) {
  auto graph = model(spec);
  REQUIRE(graph);
  return *std::move(graph);
}

bool same(const Embedding& a, const Embedding& b) {
  return a.lanes.size() == b.lanes.size() &&
         std::equal(a.lanes.begin(), a.lanes.end(), b.lanes.begin(),
                    [](const Lane& x, const Lane& y) {
                      return x.order == y.order && x.hops == y.hops && x.starts == y.starts &&
                             x.spread == y.spread && x.entries.size() == y.entries.size() &&
                             x.gigabytes_per_second == y.gigabytes_per_second;
                    });
}

// Every block on its way to every endpoint, hop by hop, and what that puts on the links. Returns
// the hops to the farthest endpoint, or none if some endpoint is not reached.
std::optional<std::size_t> follow(const Embedding& embedding, const Lane& lane,
                                  std::vector<Load::Link>& links) {
  const std::size_t size = lane.order.size();
  const double block = lane.gigabytes_per_second / static_cast<double>(size - 1);
  std::size_t deepest = 0;
  for (std::size_t root = 0; root < size; ++root) {
    for (std::size_t place = 0; place < size; ++place) {
      std::size_t depth = 0;
      for (std::size_t at = place; at != root; at = lane.source(root, at).from) {
        if (++depth > size) return std::nullopt;
      }
      deepest = std::max(deepest, depth);
      if (place == root) continue;
      for (const EdgeUse& use : embedding.routes[lane.source(root, place).hop])
        (use.forward ? links[use.link].forward : links[use.link].backward) += block * use.share;
    }
  }
  return deepest;
}

void check_loads(const Graph& graph, const Embedding& embedding) {
  const auto loads = load(graph, embedding);
  INFO((loads ? "" : loads.error().what));
  REQUIRE(loads);
  REQUIRE(loads->gigabytes_per_second == Approx(embedding.gigabytes_per_second).epsilon(1e-9));
  std::vector<Load::Link> links(graph.links.size());
  for (const Lane& lane : embedding.lanes) {
    const auto depth = follow(embedding, lane, links);
    REQUIRE(depth == lane.depth());
  }
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    const Link& link = graph.links[i];
    REQUIRE((!link.forward.known() || links[i].forward <= link.forward.value * (1 + 1e-6)));
    REQUIRE((!link.backward.known() || links[i].backward <= link.backward.value * (1 + 1e-6)));
    const bool equal = std::abs(links[i].forward - loads->links[i].forward) < 1e-6 &&
                       std::abs(links[i].backward - loads->links[i].backward) < 1e-6;
    REQUIRE(equal);
  }
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
  check_loads(graph, *found);
  // No lane beats what no algorithm beats; bounds round bandwidths to whole MB/s.
  REQUIRE(found->gigabytes_per_second <= found->bound.gigabytes_per_second() * 1.0001);
  REQUIRE(found->gigabytes_per_second <= found->bound_of_kinds.gigabytes_per_second() * 1.0001);
  REQUIRE(
      (found->share > 0 && found->share <= found->share_of_kinds && found->share_of_kinds <= 1));
  REQUIRE((found->ring_limit == 0 || found->rings <= found->ring_limit * (1 + 1e-6)));
  REQUIRE(found->gigabytes_per_second >= found->rings * (1 - 1e-9));
  REQUIRE(found->report.size() >= (found->share_of_kinds < 0.95 ? 4 : 2));
  return *std::move(found);
}

// Two to eight GPUs and up to five switches: a tree of links, and some more.
Graph random_machine(std::mt19937& random) {
  Graph graph;
  const std::size_t gpus = 2 + random() % 7, nodes = gpus + random() % 6;
  const auto tie = [&](std::size_t a, std::size_t b) {
    join(graph, LinkKind::kPcie, NodeId{static_cast<std::uint32_t>(a)},
         NodeId{static_cast<std::uint32_t>(b)}, 1 + static_cast<double>(random() % 300) / 10);
  };
  for (std::size_t i = 0; i < nodes; ++i)
    add(graph, i < gpus ? NodeKind::kGpu : NodeKind::kPcieSwitch, "node" + std::to_string(i));
  // What is no GPU comes first, so that no way needs a GPU that passes on.
  for (std::size_t i = 1; i < nodes; ++i) tie(nodes - 1 - i, nodes - 1 - random() % i);
  for (std::size_t more = random() % 10; more > 0; --more) {
    const std::size_t a = random() % nodes, b = random() % nodes;
    if (a != b) tie(a, b);
  }
  return graph;
}

bool has_trees(const Embedding& embedding) { return !embedding.lanes.front().is_ring(); }

}  // namespace

TEST_CASE("Embedding: 95 % of the bound on every model, with 1, 2 and 4 hosts") {
  std::mt19937 random(Catch::rngSeed());
  test::Sample sample(test::share(2));
  for (const Model* each : models()) {
    for (const int size : {1, 2, 4}) {
      const std::string spec = std::string(each->name) + ":" + std::to_string(size);
      sample.add(std::string(each->name), [spec] {
        CAPTURE(spec);
        const Graph graph = machine(spec);
        const Embedding found = checked(graph, default_endpoints(graph));
        CAPTURE(found.method);
        CHECK(found.share_of_kinds >= 0.95);
        // Trees only if rings do not suffice, and no more than needed.
        CHECK((!has_trees(found) || found.rings < 0.95 * found.bound.gigabytes_per_second()));
        CHECK((!has_trees(found) || found.lanes.size() <= 8));
      });
    }
  }
  sample.run(random);
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
  for (const std::string_view spec : {"hgx-h100:4", "dgx-a100:4", "hgx-h100:24", "hgx-h100:25"}) {
    CAPTURE(spec);
    const Graph graph = machine(spec);
    const Embedding found = checked(graph, default_endpoints(graph));
    CHECK((has_trees(found) || found.lanes.size() == 8));
    const auto has = [&](LinkKind kind) {
      return std::find(found.kinds.begin(), found.kinds.end(), kind) != found.kinds.end();
    };
    CHECK(has(LinkKind::kPort));
    // An odd ring has one seam where it does not stay on its rail.
    CHECK(has(LinkKind::kNetwork) == (spec == "hgx-h100:25"));
  }
}

TEST_CASE("Embedding: where NICs are the limit, a block enters every host once") {
  // Rings can have 48 * 16 / 15 of the bound of 96 GB/s that four NICs of 12 allow two hosts.
  for (const std::string_view spec : {"dgx1-v100:2", "p4d:2", "hgx-b200:4", "dgx-a100:4"}) {
    CAPTURE(spec);
    const Graph graph = machine(spec);
    const Embedding found = checked(graph, default_endpoints(graph));
    CHECK(found.rings >= 0.99 * found.ring_limit);
    CHECK(found.rings <= found.ring_limit * (1 + 1e-6));
    CHECK(found.share == Approx(1).epsilon(1e-4));
    CHECK(found.lanes.size() == 1);
    CHECK(found.lanes[0].depth() <= 5);
    CHECK_THAT(found.report.back(), Catch::Matchers::Contains("rings alone would gather"));
  }
  const Graph graph = machine("dgx1-v100:2");
  CHECK(checked(graph, default_endpoints(graph)).ring_limit == Approx(51.2));
}

TEST_CASE("Embedding: the report says where the bound is missed, and many hosts are a grid") {
  const Graph torus = machine("hgx-b200:4/torus"), many = machine("p4d:17/fat-tree/2");
  const Embedding missed = checked(torus, default_endpoints(torus));
  CHECK(missed.share_of_kinds < 0.95);
  CHECK_THAT(missed.report.back(), Catch::Matchers::Contains("16 endpoints only"));
  const Embedding grid = checked(many, default_endpoints(many));
  CHECK(has_trees(grid));
  CHECK(grid.share_of_kinds >= 0.95);
  CHECK(grid.lanes[0].depth() == 3);  // To a block, in the block, in the host.
}

TEST_CASE("Embedding: random parts of machines, the same twice") {
  std::mt19937 random(7);
  for (const std::string_view spec :
       {"dgx1-v100", "dgx2", "mi300x", "hgx-h100:3", "pcie-8", "pcie-8:2", "dgx1-v100:2",
        "dgx-a100:4", "pcie-4:4", "gb200-nvl72", "p5:2"}) {
    const Graph graph = machine(spec);
    for (int round = 0; round < (kSanitized ? 2 : 6); ++round) {
      auto all = default_endpoints(graph);
      const std::size_t size = 2 + random() % (all.size() - 1);
      for (std::size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random() % i]);
      all.resize(size);
      CAPTURE(spec, round, size);
      const Embedding first = checked(graph, all);
      CAPTURE(first.method);
      const bool single = spec.find(':') == std::string_view::npos;
      CHECK((!single || size > 16 || first.share_of_kinds >= 0.95));
      const auto second = embed(graph, all);
      REQUIRE(second);
      CHECK(same(first, *second));
    }
  }
}

TEST_CASE("Embedding: random machines of one host, 95 % of the bound") {
  double slowest_ms = 0;
  for (std::uint32_t seed = 1; seed <= (kSanitized ? 15U : 60U); ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const Graph graph = random_machine(random);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(embed(graph, graph.all(NodeKind::kGpu)));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    slowest_ms = std::max(slowest_ms, took.count());
    const Embedding found = checked(graph, graph.all(NodeKind::kGpu));
    CAPTURE(found.method, found.share_of_kinds);
    CHECK(found.share_of_kinds >= 0.95);
  }
  WARN("up to 8 GPUs, the slowest of 60: " << slowest_ms << " ms");
}

TEST_CASE("Embedding: GPUs pass on what is for others only if they are endpoints") {
  Graph graph;
  const NodeId a = add(graph, NodeKind::kGpu, "a"), b = add(graph, NodeKind::kGpu, "b"),
               c = add(graph, NodeKind::kGpu, "c");
  join(graph, LinkKind::kNvlink, a, b, 10);
  join(graph, LinkKind::kNvlink, b, c, 10);
  CHECK(checked(graph, {a, b, c}).gigabytes_per_second == Approx(15).epsilon(0.01));
  const auto found = embed(graph, std::vector{a, c});
  REQUIRE(!found);
  CHECK_THAT(found.error().what, Catch::Matchers::Contains("neither rings nor trees"));
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
