// Bounds: against published figures, against all cuts of small random graphs, and what is refused.
#include "topology/bounds/bound.h"
#include "topology/bounds/network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "support/catch.h"
#include "support/topology/topology_graphs.h"
#include "topology/models/model.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;

Result<Bound> gpu_bound(const Graph& graph, Pattern pattern) {
  return bound(graph, pattern, default_endpoints(graph));
}

double gbps(const Graph& graph, Pattern pattern) {
  const auto result = gpu_bound(graph, pattern);
  REQUIRE(result);
  return result->gigabytes_per_second();
}

// All cuts, on the links themselves: largest |S in C| / (exit * N); of an all-to-all, where those
// outside are sent to each by itself, that times N - |S in C|.
Rational brute_force(const Graph& graph, const std::vector<NodeId>& endpoints, bool entering,
                     bool all_to_all = false) {
  Rational worst;
  for (std::uint32_t set = 1; set < 1U << graph.nodes.size(); ++set) {
    const auto inside = [&](NodeId id) { return (set >> id.value & 1) != 0; };
    std::int64_t count = 0;
    for (const NodeId id : endpoints) count += inside(id) ? 1 : 0;
    if (count == 0 || count == static_cast<std::int64_t>(endpoints.size())) continue;
    std::int64_t exit = 0;
    for (const Link& link : graph.links) {
      if (inside(link.a) == inside(link.b)) continue;
      const bool forward = inside(link.a) != entering;
      exit += std::llround(1000 * (forward ? link.forward : link.backward).value);
    }
    if (exit == 0) return {};
    const auto size = static_cast<std::int64_t>(endpoints.size());
    const Rational ratio(all_to_all ? count * (size - count) : count, exit * size);
    if (ratio > worst) worst = ratio;
  }
  return worst;
}

Graph random_graph(std::mt19937& random) {
  const auto upto = [&](int most) { return static_cast<int>(random() % unsigned(most)); };
  Graph graph;
  const int nodes = 3 + upto(9);
  for (int i = 0; i < nodes; ++i) {
    const bool gpu = i < 2 || upto(3) != 0;
    add(graph, gpu ? NodeKind::kGpu : NodeKind::kPcieSwitch, "n" + std::to_string(i));
  }
  for (int i = 0; i < 3 * nodes; ++i) {
    const NodeId a{static_cast<std::uint32_t>(upto(nodes))};
    const NodeId b{static_cast<std::uint32_t>(upto(nodes))};
    if (a == b) continue;
    join(graph, LinkKind::kPcie, a, b, 1 + upto(20));
    graph.links.back().backward.value = upto(20);
  }
  return graph;
}

TEST_CASE("bounds of small random graphs are those of all cuts") {
  std::mt19937 random(7);
  int connected = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = random_graph(random);
    const auto endpoints = graph.all(NodeKind::kGpu);
    for (const bool reversed : {false, true}) {
      const auto want = brute_force(graph, endpoints, reversed);
      const auto got =
          bound(graph, reversed ? Pattern::kReduceScatter : Pattern::kAllGather, endpoints);
      INFO("graph " << i << ", reversed " << reversed);
      REQUIRE(static_cast<bool>(got) == (want > Rational()));
      if (!got) continue;
      ++connected;
      REQUIRE(got->seconds_per_mb == want);
      REQUIRE(got->exact);
    }
  }
  REQUIRE(connected > 200);
}

// What has to leave a set of endpoints, in shares of M/N: `in` says whether a rank is inside.
template <class In>
std::int64_t rooted_demand(Pattern pattern, std::int64_t size, std::int64_t count, In&& in,
                           std::size_t root, std::size_t last) {
  switch (pattern) {
    case Pattern::kBroadcast: return in(root) ? size : 0;
    case Pattern::kReduce: return in(root) ? 0 : size;
    case Pattern::kGather: return in(root) ? 0 : count;
    case Pattern::kScatter: return in(root) ? size - count : 0;
    default: return in(root) || !in(last) ? size : 0;  // A scan.
  }
}

// All cuts, as above; 0: some can't be crossed.
Rational brute_force_rooted(const Graph& graph, const std::vector<NodeId>& endpoints,
                            Pattern pattern, std::size_t root, std::size_t last) {
  Rational worst;
  const auto size = static_cast<std::int64_t>(endpoints.size());
  for (std::uint32_t set = 1; set < 1U << graph.nodes.size(); ++set) {
    const auto inside = [&](NodeId id) { return (set >> id.value & 1) != 0; };
    const auto in = [&](std::size_t rank) { return inside(endpoints[rank]); };
    const std::int64_t count = std::ranges::count_if(endpoints, inside);
    if (count == 0 || count == size) continue;
    const std::int64_t demand = rooted_demand(pattern, size, count, in, root, last);
    if (demand == 0) continue;
    std::int64_t exit = 0;
    for (const Link& link : graph.links) {
      if (inside(link.a) == inside(link.b)) continue;
      exit += std::llround(1000 * (inside(link.a) ? link.forward : link.backward).value);
    }
    if (exit == 0) return {};
    worst = std::max(worst, Rational(demand, exit * size));
  }
  return worst;
}

TEST_CASE("bounds of what has a root, and of scans, are those of all cuts") {
  std::mt19937 random(17);
  int connected = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = random_graph(random);
    const auto endpoints = graph.all(NodeKind::kGpu);
    const std::size_t root = random() % endpoints.size(), last = random() % endpoints.size();
    for (const Pattern pattern : {Pattern::kBroadcast, Pattern::kReduce, Pattern::kGather,
                                  Pattern::kScatter, Pattern::kScan}) {
      const auto want = brute_force_rooted(graph, endpoints, pattern, root, last);
      const auto got = bound(graph, pattern, endpoints, {.root = root, .last = last});
      INFO("graph " << i << ", pattern " << static_cast<int>(pattern) << ", root " << root
                    << ", last " << last);
      REQUIRE(static_cast<bool>(got) == (want > Rational()));
      if (!got) continue;
      ++connected;
      REQUIRE(got->seconds_per_mb == want);
      REQUIRE(got->exact == (pattern != Pattern::kScan));
    }
  }
  REQUIRE(connected > 700);
}

TEST_CASE("bounds of an all-to-all are those of a cut, on most small graphs of the worst") {
  std::mt19937 random(13);
  int connected = 0, worst = 0;
  for (int i = 0; i < 300; ++i) {
    const Graph graph = random_graph(random);
    const auto want = brute_force(graph, graph.all(NodeKind::kGpu), false, true);
    const auto got = gpu_bound(graph, Pattern::kAllToAll);
    INFO("graph " << i);
    REQUIRE(static_cast<bool>(got) == (want > Rational()));
    if (!got) continue;
    ++connected;
    REQUIRE_FALSE(got->seconds_per_mb > want);
    worst += got->seconds_per_mb == want ? 1 : 0;
  }
  REQUIRE(worst * 10 > connected * 9);
}

TEST_CASE("whatever is bounded, the cut's figure is that of the links that cross it that way") {
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    const Graph graph = random_graph(random);
    for (const Pattern pattern : {Pattern::kAllGather, Pattern::kReduceScatter, Pattern::kAllReduce,
                                  Pattern::kBroadcast, Pattern::kReduce, Pattern::kGather,
                                  Pattern::kScatter, Pattern::kScan, Pattern::kAllToAll}) {
      const auto got = gpu_bound(graph, pattern);
      if (!got) continue;
      const bool entered = pattern == Pattern::kReduceScatter || pattern == Pattern::kReduce ||
                           pattern == Pattern::kScatter;
      const auto& inside = got->cut.inside;
      const auto in = [&](NodeId node) {
        return std::find(inside.begin(), inside.end(), node) != inside.end();
      };
      double exit = 0;
      for (const Link& link : graph.links) {
        if (in(link.a) == in(link.b)) continue;
        const bool forward = in(link.a) != entered;
        exit += 1000 * (forward ? link.forward : link.backward).value;
      }
      INFO("graph " << i << ", pattern " << static_cast<int>(pattern));
      REQUIRE(static_cast<double>(got->cut.exit_mbps) == Approx(exit));
    }
  }
}

TEST_CASE("an all-reduce's cut leaves by the narrow direction, whichever end it begins at") {
  for (const bool narrow_back : {false, true}) {
    Graph graph;
    for (int i = 0; i < 6; ++i) add(graph, NodeKind::kGpu, "n" + std::to_string(i));
    for (std::uint32_t a = 0; a < 6; ++a) {
      for (std::uint32_t b = a + 1; b < 6; ++b) {
        if (a / 3 == b / 3) join(graph, LinkKind::kNvlink, {a}, {b}, 400);
      }
    }
    join(graph, LinkKind::kPcie, {0}, {3}, narrow_back ? 50 : 5);
    graph.links.back().backward.value = narrow_back ? 5 : 50;
    const auto got = gpu_bound(graph, Pattern::kAllReduce);
    REQUIRE(got);
    REQUIRE(got->cut.exit_mbps == 5000);
    const std::uint32_t first = narrow_back ? 3 : 0;
    REQUIRE(got->cut.inside == std::vector<NodeId>{{first}, {first + 1}, {first + 2}});
  }
}

TEST_CASE("bounds of known machines") {
  const Graph box = test::nvswitch_box();
  REQUIRE(gbps(box, Pattern::kAllGather) == Approx(450 * 8 / 7.0));
  REQUIRE(gbps(box, Pattern::kReduceScatter) == Approx(450 * 8 / 7.0));
  REQUIRE(gbps(box, Pattern::kAllReduce) == Approx(450 * 8 / 14.0));
  REQUIRE(gbps(box, Pattern::kBroadcast) == Approx(450));
  REQUIRE(gbps(box, Pattern::kAllToAll) == Approx(450 * 8 / 7.0));
  // One GPU's port, for all or for what the 7 others have.
  REQUIRE(gbps(box, Pattern::kReduce) == Approx(450));
  REQUIRE(gbps(box, Pattern::kScan) == Approx(450));
  REQUIRE(gbps(box, Pattern::kGather) == Approx(450 * 8 / 7.0));
  REQUIRE(gbps(box, Pattern::kScatter) == Approx(450 * 8 / 7.0));
  // 6 links of 20 GB/s a GPU: no cut is worse than one GPU's own.
  REQUIRE(gbps(test::dgx1(), Pattern::kAllGather) == Approx(120 * 8 / 7.0));
  // 4 of 8 GPUs over the socket link: 10 GB/s for half of the result.
  REQUIRE(gbps(test::pcie_box(), Pattern::kAllGather) == Approx(20));
  // There an eighth of what each of 4 GPUs sends goes to each of the 4 others.
  REQUIRE(gbps(test::pcie_box(), Pattern::kAllToAll) == Approx(10 * 8 / 16.0));
  // Published for A100 hosts: 2 hosts 346.7, 4 hosts 266.7 and 133.3.
  REQUIRE(gbps(test::rails(2, 8, 300, 25), Pattern::kAllGather) == Approx(325 * 16 / 15.0));
  REQUIRE(gbps(test::rails(4, 8, 300, 25), Pattern::kAllGather) == Approx(800 / 3.0));
  REQUIRE(gbps(test::rails(4, 8, 300, 25), Pattern::kAllReduce) == Approx(400 / 3.0));
}

TEST_CASE("the cut is named in words, and its figure is that of its links") {
  const Graph graph = test::rails(4, 8, 300, 25);
  const auto result = gpu_bound(graph, Pattern::kAllGather);
  REQUIRE(result);
  REQUIRE(result->cut.exit_mbps == 200'000);
  REQUIRE(result->cut.words ==
          "24 of 32 endpoints (host1, host2, host3) leave through 8 port links: 200 GB/s");
}

TEST_CASE("symmetry changes no bound, and unlike hosts are not taken as alike") {
  Graph graph = test::rails(4, 4, 100, 25);
  // A slow link in the last host, which a stand-in would not see.
  graph.links.back().backward.value = 1;
  const auto endpoints = default_endpoints(graph);
  for (const Pattern pattern :
       {Pattern::kAllGather, Pattern::kReduceScatter, Pattern::kAllReduce, Pattern::kBroadcast}) {
    for (const std::size_t root : {std::size_t{0}, std::size_t{15}}) {
      const auto with = bound(graph, pattern, endpoints, {root, true});
      const auto without = bound(graph, pattern, endpoints, {root, false});
      REQUIRE(with);
      REQUIRE(without);
      REQUIRE(with->seconds_per_mb == without->seconds_per_mb);
    }
  }
  Graph weak = test::rails(3, 2, 100, 25);
  for (Link& link : weak.links) {
    const bool last = weak[link.a].name == "host2/gpu1" || weak[link.b].name == "host2/gpu1";
    if (last) link.forward.value = link.backward.value = 1;
  }
  REQUIRE(gbps(weak, Pattern::kAllGather) == Approx(2 * 6 / 5.0));
}

TEST_CASE("unknown bandwidths are unlimited, and said") {
  Graph graph = test::nvswitch_box(4, 100);
  graph.links[0].forward = graph.links[0].backward = {};
  const auto some = gpu_bound(graph, Pattern::kAllGather);
  REQUIRE(some);
  REQUIRE(some->gigabytes_per_second() == Approx(100 * 4 / 3.0));
  REQUIRE(some->findings.size() == 1);
  REQUIRE(some->findings[0].code == "bandwidth-unknown");
  for (Link& link : graph.links) link.forward = link.backward = {};
  REQUIRE_FALSE(gpu_bound(graph, Pattern::kAllGather));
  REQUIRE_FALSE(gpu_bound(graph, Pattern::kBroadcast));
}

TEST_CASE("endpoints of one host that reach each other in it are bounded without the network") {
  for (const Model* each : models()) {
    const auto whole = model(std::string(each->name) + ":1");
    REQUIRE(whole);
    if (whole->all(NodeKind::kHost).size() > 1) continue;
    Graph without = *whole, unknown = *whole;
    std::erase_if(without.links, [](const Link& link) { return is_network(link.kind); });
    for (Link& link : unknown.links) {
      if (is_network(link.kind)) link.forward = link.backward = {};
    }
    INFO(each->name);
    for (const Graph* graph : std::initializer_list<const Graph*>{&without, &unknown}) {
      const auto ends = default_endpoints(*whole);
      const auto one = bound(*whole, Pattern::kAllGather, ends);
      const auto other = bound(*graph, Pattern::kAllGather, ends);
      REQUIRE(one);
      REQUIRE(other);
      CHECK(one->seconds_per_mb == other->seconds_per_mb);
      CHECK(one->exact);
      CHECK(other->exact);
    }
  }
  // GPUs that only GPUs join send past these by the network.
  Graph chain;
  const NodeId host = add(chain, NodeKind::kHost, "host0");
  const NodeId plane = add(chain, NodeKind::kPlane, "network");
  for (int i = 0; i < 3; ++i) {
    const NodeId gpu = add(chain, NodeKind::kGpu, "host0/gpu" + std::to_string(i), host);
    const NodeId nic = add(chain, NodeKind::kNic, "host0/nic" + std::to_string(i), host);
    join(chain, LinkKind::kPcie, gpu, nic, 20);
    join(chain, LinkKind::kPort, nic, plane, 10);
    if (i > 0) join(chain, LinkKind::kNvlink, NodeId{gpu.value - 2}, gpu, 5);
  }
  CHECK(gbps(chain, Pattern::kBroadcast) == Approx(15));
}

TEST_CASE("a bound over links that nobody knows is not called exact") {
  Graph graph = test::nvswitch_box(4, 100);
  REQUIRE(gpu_bound(graph, Pattern::kAllGather)->exact);
  graph.links[0].forward = graph.links[0].backward = {};
  CHECK_FALSE(gpu_bound(graph, Pattern::kAllGather)->exact);
  CHECK_FALSE(gpu_bound(graph, Pattern::kBroadcast)->exact);
}

// Pods of hosts of 2 GPUs and a NIC, on a leaf each; leaves on 2 spines.
Graph pods(const std::vector<double>& leaf_rates, int hosts, std::mt19937& random) {
  Graph graph;
  const std::array spines{add(graph, NodeKind::kNetworkSwitch, "spine0"),
                          add(graph, NodeKind::kNetworkSwitch, "spine1")};
  int number = 0;
  for (std::size_t pod = 0; pod < leaf_rates.size(); ++pod) {
    const NodeId leaf = add(graph, NodeKind::kNetworkSwitch, "leaf" + std::to_string(pod));
    for (const NodeId spine : spines) join(graph, LinkKind::kNetwork, leaf, spine, leaf_rates[pod]);
    for (int h = 0; h < hosts; ++h, ++number) {
      const auto gpus = test::add_nvswitch_host(graph, number, 2, 10);
      const NodeId nic =
          add(graph, NodeKind::kNic, "nic" + std::to_string(number), graph[gpus[0]].host);
      join(graph, LinkKind::kPcie, gpus[0], nic, 5 + static_cast<int>(random() % 2));
      join(graph, LinkKind::kPort, nic, leaf, 3);
    }
  }
  return graph;
}

TEST_CASE("endpoints that stand for others give the bound of all") {
  std::mt19937 random(17);
  std::size_t fewer = 0;
  for (int i = 0; i < 60; ++i) {
    std::vector<double> rates;
    for (int pod = 2 + static_cast<int>(random() % 4); pod > 0; --pod)
      rates.push_back(1 + static_cast<int>(random() % 2));
    Graph graph = pods(rates, 1 + static_cast<int>(random() % 3), random);
    if (i % 3 == 0) graph.links[random() % graph.links.size()].backward.value /= 2;
    const auto endpoints = graph.all(NodeKind::kGpu);
    for (const Pattern pattern : {Pattern::kAllGather, Pattern::kReduceScatter, Pattern::kAllReduce,
                                  Pattern::kBroadcast, Pattern::kAllToAll}) {
      INFO("graph " << i << ", pattern " << static_cast<int>(pattern));
      const std::size_t root = random() % endpoints.size();
      const auto all = bound(graph, pattern, endpoints, {.root = root, .use_symmetry = false});
      const auto few = bound(graph, pattern, endpoints, {.root = root});
      REQUIRE(all);
      REQUIRE(few);
      // Not all cuts of an all-to-all are tried: those near fewer endpoints prove no more.
      if (pattern == Pattern::kAllToAll)
        CHECK_FALSE(few->seconds_per_mb > all->seconds_per_mb);
      else
        CHECK(few->seconds_per_mb == all->seconds_per_mb);
    }
    const auto network = make_network(graph, endpoints, false);
    REQUIRE(network);
    const auto hosts = graph.all(NodeKind::kHost).size();
    if (representatives(graph, *network, {}).size() < 2 * hosts) ++fewer;
  }
  CHECK(fewer > 30);
}

TEST_CASE("of alike pods of alike hosts one host stands for all") {
  std::mt19937 random(19);
  Graph graph = pods({2, 2, 2, 2}, 4, random);
  for (Link& link : graph.links) {
    if (link.kind == LinkKind::kPcie) link.forward.value = link.backward.value = 5;
  }
  const auto endpoints = graph.all(NodeKind::kGpu);
  const auto network = make_network(graph, endpoints, false);
  REQUIRE(network);
  CHECK(representatives(graph, *network, {}).size() == 2);
  // The pod of the endpoint that stands apart is one more, and so is its host.
  CHECK(representatives(graph, *network, endpoints[5]).size() == 2 * 3);
}

TEST_CASE("bounds refuse what makes no sense, in words") {
  Graph graph = test::nvswitch_box(4, 100);
  const auto gpus = default_endpoints(graph);
  const auto what = [&](std::vector<NodeId> endpoints) {
    const auto result = bound(graph, Pattern::kAllGather, endpoints);
    REQUIRE_FALSE(result);
    return result.error().what;
  };
  REQUIRE(what({gpus[0]}) == "bound: 1 endpoint; choose 2 to 16384");
  REQUIRE(what({gpus[0], gpus[0]}) == "bound: endpoint host0/gpu0 twice; name each once");
  REQUIRE(what({gpus[0], NodeId{99}}) ==
          "bound: endpoint 99 is not in the graph; choose nodes of it");
  const NodeId alone = add(graph, NodeKind::kGpu, "lonely");
  REQUIRE(what({gpus[0], alone}).find("lonely can't be reached") != std::string::npos);
  graph.links[0].forward.value = -1;
  REQUIRE(what({gpus[0], gpus[1]}).find("has -1 GB/s") != std::string::npos);
  REQUIRE_FALSE(bound(test::nvswitch_box(), Pattern::kBroadcast, gpus, {9, true}));
}

}  // namespace
}  // namespace tutti::topology
