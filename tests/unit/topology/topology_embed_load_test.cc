// load(), the judge of embeddings: what it refuses, and what it says of lanes made by hand.
#include "support/catch.h"
#include "support/topology/topology_graphs.h"
#include "topology/embedding/embed.h"
#include "topology/models/model.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;

Graph machine(std::string_view spec) {
  auto graph = model(spec);
  REQUIRE(graph);
  return *std::move(graph);
}

}  // namespace

TEST_CASE("Embedding: load() refuses what is no embedding") {
  const Graph graph = machine("dgx1-v100");
  const auto good = embed(graph, default_endpoints(graph));
  REQUIRE(good);
  const auto refused = [&](auto&& change, std::string_view why) {
    Embedding bad = *good;
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

TEST_CASE("Embedding: load() refuses what are no trees") {
  const Graph graph = machine("dgx1-v100:2");
  const auto found = embed(graph, default_endpoints(graph));
  REQUIRE(found);
  REQUIRE(!found->lanes[0].is_ring());
  const auto refused = [&](auto&& change, std::string_view why) {
    Embedding bad = *found;
    change(bad.lanes[0]);
    const auto result = load(graph, bad);
    REQUIRE(!result);
    CHECK(result.error().code == Code::kInvalidPlan);
    CHECK_THAT(result.error().what, Catch::Matchers::Contains(std::string(why)));
  };
  refused([](Lane& l) { l.starts[1] = 20; }, "tables do not fit");
  refused([](Lane& l) { l.starts = {0, 8, 8, 16}; }, "tables do not fit");
  refused([](Lane& l) { l.starts.clear(); }, "a hop for each");
  refused([](Lane& l) { l.hops = {0}; }, "tables do not fit");
  refused([](Lane& l) { l.entries.pop_back(); }, "tables do not fit");
  refused([](Lane& l) { l.spread.pop_back(); }, "tables do not fit");
  refused([](Lane& l) { l.spread[1].from = Source::kNone; }, "no endpoint");
  refused([](Lane& l) { l.spread[1].hop = 100000; }, "no route");
  refused([](Lane& l) { l.spread[1].from = 1; }, "does not start at its root");
  refused([](Lane& l) { l.spread[1].from = 9; }, "leaves its group");
  // Two that get it from each other.
  refused([](Lane& l) { l.spread[1].from = 2, l.spread[2].from = 1; }, "does not start");
  refused([](Lane& l) { l.entries[0].at = 1; }, "does not start at its root");
  refused([](Lane& l) { l.entries[1].at = 0; }, "outside of it");
  refused([](Lane& l) { l.entries[1].at = 100; }, "outside of it");
  refused([](Lane& l) { l.entries[1].source.from = 9; }, "never leaves its root");
  refused([](Lane& l) { l.entries[1].source.hop = l.spread[1].hop; }, "loses");
  refused([](Lane& l) { l.entries[1].source.hop = 100000; }, "no route");
}

TEST_CASE("Embedding: load() of trees by hand") {
  // A star of four around b, 10 GB/s a link: a and c and d send to b, which passes everything on.
  Graph graph;
  const NodeId a = add(graph, NodeKind::kGpu, "a"), b = add(graph, NodeKind::kGpu, "b"),
               c = add(graph, NodeKind::kGpu, "c"), d = add(graph, NodeKind::kGpu, "d");
  for (const NodeId leaf : {a, c, d}) join(graph, LinkKind::kNvlink, leaf, b, 10);
  Embedding embedding;
  embedding.routes = {{{0, true, 1}},  {{1, true, 1}},  {{2, true, 1}},
                      {{0, false, 1}}, {{1, false, 1}}, {{2, false, 1}}};
  Lane lane;
  lane.order = {b, a, c, d};
  lane.starts = {0, 4};
  lane.gigabytes_per_second = 3;  // A block 1 GB/s.
  for (std::uint32_t root = 0; root < 4; ++root) {
    lane.entries.push_back({root, {}});
    for (std::uint32_t to = 0; to < 4; ++to)
      lane.spread.push_back(to == root ? Source{}
                            : to == 0  ? Source{root, root - 1}
                                       : Source{0, 2 + to});
  }
  embedding.lanes = {lane};
  const auto loads = load(graph, embedding);
  INFO((loads ? "" : loads.error().what));
  REQUIRE(loads);
  for (const Load::Link& link : loads->links) {
    CHECK(link.forward == 1);
    CHECK(link.backward == 3);
  }
  CHECK(loads->gigabytes_per_second == Approx(10.0 / 3 * 4));
  CHECK(lane.depth() == 2);
  // No ring exists, for b would have to be passed; and these trees are the bound.
  const auto found = embed(graph, std::vector{a, b, c, d});
  REQUIRE(found);
  CHECK(found->rings == 0);
  CHECK(found->gigabytes_per_second == Approx(loads->gigabytes_per_second));
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
  embedding.lanes.resize(2);
  embedding.lanes[0].order = {a, b, c};
  embedding.lanes[0].hops = {0, 1, 2};
  embedding.lanes[0].gigabytes_per_second = 5;
  embedding.lanes[1].order = {b, a, c};
  embedding.lanes[1].hops = {3, 5, 4};
  embedding.lanes[1].gigabytes_per_second = 3;
  const auto loads = load(graph, embedding);
  REQUIRE(loads);
  CHECK(loads->links[0].forward == 5);
  CHECK(loads->links[2].backward == 3);
  CHECK(loads->busiest == Approx(5.0 / 4));
  CHECK(loads->bottleneck.link == 2);
  CHECK(loads->bottleneck.forward);
  CHECK(loads->gigabytes_per_second == Approx(8 / 1.25 * 3 / 2));
  // Packed: 4 each way; or trees, by which more goes over b.
  const auto found = embed(graph, std::vector{a, b, c});
  REQUIRE(found);
  CHECK(found->rings == Approx(8 * 1.5));
  CHECK(found->gigabytes_per_second == Approx(found->bound.gigabytes_per_second()).epsilon(0.01));
}

}  // namespace tutti::topology
