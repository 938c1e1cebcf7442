// Models and networks: sound graphs, and the figures that are published.
#include <map>
#include <set>

#include "support/catch.h"
#include "topology/join/network.h"
#include "topology/models/model.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

Graph make(const std::string& spec) {
  auto made = model(spec);
  INFO(spec << (made ? "" : ": " + made.error().what));
  REQUIRE(made);
  return *std::move(made);
}

// Connections and GB/s that leave a node by links of a kind.
struct Degree {
  int count = 0;
  double gbs = 0;
};
Degree degree(const Graph& graph, const Adjacency& adjacency, NodeId node, LinkKind kind) {
  Degree sum;
  for (const auto& edge : adjacency.from(node)) {
    if (graph.links[edge.link].kind != kind) continue;
    sum.count += graph.links[edge.link].count;
    sum.gbs += bandwidth(graph, edge).value;
  }
  return sum;
}

std::size_t reached(const Graph& graph) {
  const Adjacency adjacency(graph);
  std::vector<bool> seen(graph.nodes.size());
  std::vector<NodeId> stack{{0}};
  std::size_t count = 0;
  seen[0] = true;
  while (!stack.empty()) {
    const NodeId node = stack.back();
    stack.pop_back();
    ++count;
    for (const auto& edge : adjacency.from(node)) {
      if (seen[edge.to.value]) continue;
      seen[edge.to.value] = true;
      stack.push_back(edge.to);
    }
  }
  return count;
}

// The invariants of graph.h and the conventions of reader.h.
void check_sound(const Graph& graph) {
  std::set<std::string> names, buses;
  for (const Node& node : graph.nodes) {
    INFO(node.name);
    REQUIRE(names.insert(node.name).second);
    REQUIRE(node.name.find_first_of(" \t\n") == std::string::npos);
    if (node.host.exists()) {
      REQUIRE(graph[node.host].kind == NodeKind::kHost);
      REQUIRE(node.name.rfind(graph[node.host].name + "/", 0) == 0);
      if (!node.bus.empty()) REQUIRE(buses.insert(graph[node.host].name + node.bus).second);
    }
    for (const auto& [key, value] : node.facts) {
      REQUIRE(key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos);
      REQUIRE(!value.empty());
    }
  }
  std::set<std::pair<NodeId, NodeId>> pairs;
  for (const Link& link : graph.links) {
    REQUIRE(link.a != link.b);
    REQUIRE(std::max(link.a, link.b).value < graph.nodes.size());
    INFO(graph[link.a].name << " " << graph[link.b].name);
    REQUIRE(pairs.insert(std::minmax(link.a, link.b)).second);
    REQUIRE(link.count > 0);
    REQUIRE(link.forward.known());
    REQUIRE(link.forward.value > 0);
    REQUIRE(link.forward == link.backward);
    REQUIRE(link.latency_us.value > 0);
    REQUIRE(link.pcie.has_value() == (link.kind == LinkKind::kPcie));
  }
}

// All nodes are one piece. Hosts have no links: each counts as joined to its first NUMA node.
void check_connected(Graph graph) {
  const auto hosts = graph.all(NodeKind::kHost);
  for (const NodeId host : hosts) {
    for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
      if (graph.nodes[i].host == host && graph.nodes[i].kind == NodeKind::kNuma) {
        Link link;
        link.a = host;
        link.b = {i};
        graph.add(link);
        break;
      }
    }
  }
  REQUIRE(reached(graph) == graph.nodes.size());
}

struct Published {
  std::string name;
  std::size_t hosts, gpus, nvswitches, nics, numa;
  int links;         // A GPU's NVLinks or xGMI links.
  double signalled;  // GB/s of all of them, one direction, as vendors publish it.
  double payload;    // GB/s of one link as NCCL's and RCCL's models have it.
  double nic_gbs;    // All NICs of the model together.
};

const std::vector<Published> kPublished{
    {"dgx1-v100", 1, 8, 0, 4, 2, 6, 150, 20, 50},
    {"dgx2", 1, 16, 12, 8, 2, 6, 150, 20, 100},
    {"dgx-a100", 1, 8, 6, 8, 8, 12, 300, 20, 200},
    {"hgx-h100", 1, 8, 4, 8, 2, 18, 450, 20.6, 400},
    {"hgx-h200", 1, 8, 4, 8, 2, 18, 450, 20.6, 400},
    {"hgx-b200", 1, 8, 2, 8, 2, 18, 900, 40.1, 400},
    {"gb200-nvl72", 18, 72, 18, 72, 36, 18, 900, 40.1, 3600},
    {"mi300x", 1, 8, 0, 8, 2, 7, 448, 48, 400},
    {"p4d", 1, 8, 6, 4, 2, 12, 300, 20, 50},
    {"p5", 1, 8, 4, 32, 2, 18, 450, 20.6, 400},
    {"pcie-8", 1, 8, 0, 2, 2, 0, 0, 0, 50},
    {"pcie-4", 1, 4, 0, 1, 2, 0, 0, 0, 25},
    {"cpu-2s", 1, 0, 0, 2, 2, 0, 0, 0, 50},
};

}  // namespace

TEST_CASE("Each model has the parts and the bandwidth that are published") {
  REQUIRE(kPublished.size() == models().size());
  for (std::size_t i = 0; i < kPublished.size(); ++i) {
    const Published& expected = kPublished[i];
    INFO(expected.name);
    REQUIRE(models()[i]->name == expected.name);
    const Graph graph = make(expected.name);
    const Adjacency adjacency(graph);
    CHECK(graph.all(NodeKind::kHost).size() == expected.hosts);
    CHECK(graph.all(NodeKind::kGpu).size() == expected.gpus);
    CHECK(graph.all(NodeKind::kNvSwitch).size() == expected.nvswitches);
    CHECK(graph.all(NodeKind::kNic).size() == expected.nics);
    CHECK(graph.all(NodeKind::kNuma).size() == expected.numa);
    for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
      const LinkKind kind = expected.name == "mi300x" ? LinkKind::kXgmi : LinkKind::kNvlink;
      const Degree links = degree(graph, adjacency, gpu, kind);
      REQUIRE(links.count == expected.links);
      REQUIRE(links.gbs == Approx(expected.links * expected.payload));
      // What a program gets is 75 to 83% of what the wires signal.
      if (expected.links > 0) {
        REQUIRE(links.gbs / expected.signalled == Approx(0.79).margin(0.045));
      }
    }
    double nic_gbs = 0;
    for (const NodeId nic : graph.all(NodeKind::kNic)) {
      nic_gbs += degree(graph, adjacency, nic, LinkKind::kPort).gbs;
    }
    CHECK(nic_gbs == Approx(expected.nic_gbs));
  }
}

TEST_CASE("Every model of every size on every network is sound, in one piece, and the same again") {
  for (const Model* known : models()) {
    for (const std::string size : {"1", "2", "4"}) {
      std::vector<std::string> specs{std::string(known->name) + ":" + size};
      for (const char* network : {"plane", "rail", "rail/2", "fat-tree", "fat-tree/3", "dragonfly",
                                  "dragonfly/2", "torus"}) {
        specs.push_back(specs[0] + "/" + network);
      }
      for (const std::string& spec : specs) {
        INFO(spec);
        const Graph graph = make(spec);
        check_sound(graph);
        check_connected(graph);
        REQUIRE(graph == make(spec));
      }
    }
  }
}

TEST_CASE("The hybrid cube mesh of a DGX-1 is wired as nvidia-smi shows it") {
  // Rows of `nvidia-smi topo -m` on a DGX-1 with V100: NVLinks between GPU pairs.
  const int expected[8][8] = {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0},
                              {1, 2, 0, 2, 0, 0, 1, 0}, {2, 1, 2, 0, 0, 0, 0, 1},
                              {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
                              {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
  const Graph graph = make("dgx1-v100");
  int found[8][8] = {};
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink) continue;
    found[graph[link.a].index][graph[link.b].index] += link.count;
    found[graph[link.b].index][graph[link.a].index] += link.count;
  }
  for (int a = 0; a < 8; ++a) {
    for (int b = 0; b < 8; ++b) {
      INFO(a << " " << b);
      CHECK(found[a][b] == expected[a][b]);
    }
  }
}

TEST_CASE("An H100's links are spread over its switches as 5, 4, 4, 5") {
  const Graph graph = make("hgx-h100");
  std::map<std::string, std::set<int>> counts;
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::kNvlink) counts[graph[link.b].name].insert(link.count);
  }
  const std::map<std::string, std::set<int>> expected{{"host0/nvswitch0", {5}},
                                                      {"host0/nvswitch1", {4}},
                                                      {"host0/nvswitch2", {4}},
                                                      {"host0/nvswitch3", {5}}};
  CHECK(counts == expected);
}

TEST_CASE("A rail-optimised tree has the leaves and spines of NVIDIA's reference") {
  // DGX SuperPOD H100: one, two and four units of 32 hosts with 8 rails.
  struct Size {
    int hosts;
    std::size_t leaves, spines;
  };
  for (const Size size : {Size{32, 8, 4}, Size{64, 16, 8}, Size{128, 32, 16}}) {
    const Graph graph = make("hgx-h100:" + std::to_string(size.hosts) + "/rail");
    INFO(size.hosts);
    const Adjacency adjacency(graph);
    std::size_t leaves = 0, spines = 0;
    int uplinks = 0;
    for (const NodeId node : graph.all(NodeKind::kNetworkSwitch)) {
      const int down = degree(graph, adjacency, node, LinkKind::kPort).count;
      const int up = degree(graph, adjacency, node, LinkKind::kNetwork).count;
      REQUIRE(down + up <= 64);
      ++(down > 0 ? leaves : spines);
      if (down > 0) {
        REQUIRE(up == down);  // Nobody is oversubscribed.
        uplinks += up;
      }
    }
    CHECK(leaves == size.leaves);
    CHECK(spines == size.spines);
    CHECK(uplinks == size.hosts * 8);
    CHECK(graph.all(NodeKind::kGpu).size() == static_cast<std::size_t>(size.hosts) * 8);
  }
}

TEST_CASE("A rail leaf has the same NIC of every host; a plain leaf has whole hosts") {
  const auto places = [](const Graph& graph) {
    std::map<std::string, std::set<int>> found;
    for (const Link& link : graph.links) {
      if (link.kind == LinkKind::kPort) found[graph[link.b].name].insert(graph[link.a].index);
    }
    return found;
  };
  const auto rail = places(make("hgx-h100:4"));
  CHECK(rail.size() == 8);
  CHECK(rail.at("rail5/leaf0") == std::set<int>{5});
  const auto plain = places(make("hgx-h100:8/fat-tree"));
  CHECK(plain.size() == 2);
  CHECK(plain.at("leaf1").size() == 8);
}

TEST_CASE("An oversubscribed tree has that much less above its leaves") {
  const auto uplinks = [](const Graph& graph) {
    double gbs = 0;
    for (const Link& link : graph.links) {
      if (link.kind == LinkKind::kNetwork) gbs += link.forward.value;
    }
    return gbs;
  };
  CHECK(uplinks(make("hgx-h100:64/fat-tree")) == Approx(64 * 8 * 50));
  CHECK(uplinks(make("hgx-h100:64/fat-tree/2")) == Approx(64 * 8 * 50 / 2));
  CHECK(uplinks(make("hgx-h100:64/rail/4")) == Approx(64 * 8 * 50 / 4));
}

TEST_CASE("A dragonfly joins all switches of a group and all groups") {
  const Graph graph = make("hgx-h100:32/dragonfly/4");  // 256 NICs, 16 switches, 4 groups.
  const Adjacency adjacency(graph);
  CHECK(graph.all(NodeKind::kNetworkSwitch).size() == 16);
  std::map<std::pair<std::string, std::string>, int> between;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNetwork) continue;
    const auto group = [&](NodeId node) {
      return graph[node].name.substr(0, graph[node].name.find('/'));
    };
    between[std::minmax(group(link.a), group(link.b))] += link.count;
  }
  CHECK(between.at({"group0", "group0"}) == 6);
  CHECK(between.at({"group0", "group3"}) == 4);
  CHECK(between.size() == 10);
}

TEST_CASE("A torus gives every host two neighbours a dimension") {
  const Graph graph = make("hgx-h100:16/torus/4x2x2");
  const Adjacency adjacency(graph);
  for (const NodeId router : graph.all(NodeKind::kNetworkSwitch)) {
    const Degree links = degree(graph, adjacency, router, LinkKind::kNetwork);
    CHECK(links.count == 6);
    CHECK(links.gbs == Approx(400));
  }
}

TEST_CASE("Specifications that make no sense are refused in one line that says what there is") {
  const auto refused = [](const std::string& spec, const std::string& part) {
    const auto made = model(spec);
    INFO(spec);
    REQUIRE(!made);
    INFO(made.error().what);
    CHECK(made.error().code == Code::kInvalidArgument);
    CHECK(made.error().what.find(part) != std::string::npos);
    CHECK(made.error().what.find('\n') == std::string::npos);
    CHECK(made.error().what.size() < 512);
  };
  refused("", "hgx-h100");
  refused("hgx-h101", "hgx-h100");
  refused(std::string(100000, 'x'), "hgx-h100");
  refused("hgx-h100:", "1 to 4096");
  refused("hgx-h100:0", "1 to 4096");
  refused("hgx-h100:4097", "1 to 4096");
  refused("hgx-h100:99999999999999999999", "1 to 4096");
  refused("hgx-h100:4x", "1 to 4096");
  refused("gb200-nvl72:257", "1 to 256");
  refused("hgx-h100:4/", "fat-tree");
  refused("hgx-h100:4/star", "fat-tree");
  refused("hgx-h100:4/plane/2", "no parameter");
  refused("hgx-h100:4/rail/0", "1 to 4096");
  refused("hgx-h100:4/rail/two", "1 to 4096");
  refused("hgx-h100:4/dragonfly/-1", "1 to 4096");
  refused("hgx-h100:4/torus/4", "hosts");
  refused("hgx-h100:4/torus/2x", "AxB");
  refused("hgx-h100:4/torus/3x2", "hosts, 4");
  refused("hgx-h100:16/torus/2x2x2x2", "AxB");
}

TEST_CASE("A cluster beyond two tiers says what its spines stand for") {
  const Graph graph = make("hgx-h100:1024");
  REQUIRE(graph.notes.size() == 3);
  CHECK(graph.notes[0].find("more than two tiers") != std::string::npos);
}
