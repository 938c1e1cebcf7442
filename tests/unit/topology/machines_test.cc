// What NVML and CUDA would say on a machine that is not here.
#include <map>
#include <set>

#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "topology/capture/machines.h"
#include "topology/join/repeat.h"
#include "topology/models/model.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/file_tree.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

/// By GPU of the first host, the bandwidth of its NVLinks in both directions.
std::map<std::string, double> nvlink_gbs(const Graph& graph) {
  std::map<std::string, double> sums;
  const auto gpus = graph.all(NodeKind::kGpu);
  const NodeId first = gpus.empty() ? NodeId{} : graph[gpus.front()].host;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink) continue;
    for (const NodeId end : {link.a, link.b}) {
      if (graph[end].kind != NodeKind::kGpu || graph[end].host != first) continue;
      sums[graph[end].bus] += link.forward.value + link.backward.value;
    }
  }
  return sums;
}

bool has_nvidia(const Graph& graph) {
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const auto vendor = graph[gpu].facts.find("vendor");
    if (vendor != graph[gpu].facts.end() && vendor->second == "0x10de") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the probe finds in the libraries' answers what the model has") {
  for (const Model* one : models()) {
    CAPTURE(one->name);
    const auto graph = model(one->name);
    REQUIRE(graph);
    const auto made = library_answers(*graph);
    REQUIRE(static_cast<bool>(made) == has_nvidia(*graph));
    if (!made) continue;
    MemoryTree nothing;
    const Answers answers{made->nvml, made->cuda, not_asked("verbs")};
    const Imported probed = probe_parts(nothing, answers);
    const auto found = nvlink_gbs(probed.graph), wanted = nvlink_gbs(*graph);
    const auto gpus = probed.graph.all(NodeKind::kGpu);
    REQUIRE(gpus.size() == made->nvml.gpus.size());
    for (const NodeId gpu : gpus) {
      const std::string& bus = probed.graph[gpu].bus;
      CAPTURE(bus);
      const auto has = wanted.find(bus);
      REQUIRE((has != wanted.end()) == (found.count(bus) != 0));
      if (has != wanted.end()) CHECK(found.at(bus) == Approx(has->second).epsilon(0.05));
    }
  }
}

TEST_CASE("a machine several times has all of it so many times, on one network") {
  for (const Model* one : models()) {
    CAPTURE(one->name);
    const auto graph = model(one->name);
    REQUIRE(graph);
    const auto four = repeated(*graph, 4);
    // The hosts of a rack are joined by NVLink, which is no network.
    const bool rack = graph->all(NodeKind::kHost).size() > 1;
    REQUIRE(static_cast<bool>(four) == !rack);
    if (rack) continue;
    REQUIRE(validate(*four, one->name));
    for (const NodeKind kind : {NodeKind::kHost, NodeKind::kGpu, NodeKind::kNuma, NodeKind::kNic})
      CHECK(four->all(kind).size() == 4 * graph->all(kind).size());
    CHECK(four->all(NodeKind::kPlane).size() == graph->all(NodeKind::kPlane).size());
    CHECK(four->links.size() == 4 * graph->links.size());
    const auto same = repeated(*graph, 1);
    REQUIRE(same);
    CHECK(*same == *graph);
    for (const int times : {0, -1, 1 << 30}) CHECK_FALSE(repeated(*graph, times));
  }
}

TEST_CASE("hosts that were described one by one are one machine with one network") {
  const auto eight = model("hgx-h100"), four = model("dgx1-v100");
  REQUIRE(eight);
  REQUIRE(four);
  Graph odd = without_network(*eight);
  const Graph other = without_network(*four);
  CHECK(odd.all(NodeKind::kPlane).empty());
  CHECK(odd.nodes.size() == eight->nodes.size() - 1);
  for (const NodeId nic : odd.all(NodeKind::kNic)) CHECK(fact(odd[nic], "speed_mbps") == "400000");

  const Graph* const alike[] = {&odd, &odd, &odd};
  const auto rails = joined(alike, "rail");
  REQUIRE(rails);
  REQUIRE(validate(rails->graph, "rails"));
  CHECK(rails->graph.all(NodeKind::kGpu).size() == 24);
  // By rail, a port of each host.
  std::map<NodeId, std::set<NodeId>> ports;
  for (const Link& link : rails->graph.links) {
    if (link.kind == LinkKind::kPort) ports[link.b].insert(rails->graph[link.a].host);
    if (link.kind == LinkKind::kPort) CHECK(link.forward.value == 50);
  }
  CHECK(ports.size() == 8);
  for (const auto& [leaf, hosts] : ports) CHECK(hosts.size() == 3);

  const Graph* const two[] = {&odd, &other};
  const auto plane = joined(two, "plane");
  REQUIRE(plane);
  REQUIRE(validate(plane->graph, "plane"));
  CHECK(plane->graph.all(NodeKind::kPlane).size() == 1);
  CHECK(plane->graph.find("host1/gpu7").exists());
  // Nodes and links are where it says.
  for (std::size_t host = 0; host < 2; ++host) {
    const Graph& own = *two[host];
    for (const NodeId node : own.all())
      CHECK(plane->graph[plane->nodes[host][node.value]].bus == own[node].bus);
    for (std::size_t i = 0; i < own.links.size(); ++i) {
      const Link& link = plane->graph.links[plane->first_link[host] + i];
      CHECK(link.a == plane->nodes[host][own.links[i].a.value]);
      CHECK(link.b == plane->nodes[host][own.links[i].b.value]);
      CHECK(link.forward == own.links[i].forward);
    }
  }
}

TEST_CASE("only a host's fastest NICs of known speed are joined to others") {
  Graph graph;
  const NodeId host = graph.add({NodeKind::kHost, "node7"});
  const NodeId numa = graph.add({NodeKind::kNuma, "node7/numa0", host, 0});
  const NodeId plane = graph.add({NodeKind::kPlane, "network"});
  const auto add_nic = [&](const char* name, Quantity gbs) {
    const NodeId nic = graph.add({NodeKind::kNic, name, host});
    graph[nic].facts["speed_mbps"] = "1000";  // The port says more.
    graph.join(LinkKind::kPcie, numa, nic, {24, Origin::kTable});
    graph.join(LinkKind::kPort, nic, plane, gbs);
  };
  add_nic("node7/slow", {12.5, Origin::kMeasured});
  add_nic("node7/unknown", {});
  add_nic("node7/fast", {23.75, Origin::kMeasured});
  const Graph inside = without_network(graph);
  const Graph* const two[] = {&inside, &inside};
  const auto all = joined(two, "plane");
  REQUIRE(all);
  std::vector<std::string> ports;
  for (const Link& link : all->graph.links) {
    if (link.kind != LinkKind::kPort) continue;
    ports.push_back(all->graph[link.a].name);
    CHECK(link.forward.value == Approx(23.75));
  }
  CHECK(ports == std::vector<std::string>{"host0/fast", "host1/fast"});
}

TEST_CASE("a file's name with a number is its machine so many times") {
  const std::string path = test::machine_path("two_gpus.nccl.xml");
  const auto one = load_machine(path), three = load_machine(path + ":3");
  REQUIRE(one);
  REQUIRE(three);
  CHECK(three->graph.all(NodeKind::kGpu).size() == 3 * one->graph.all(NodeKind::kGpu).size());
  for (const char* wrong : {":0", ":-1", ":x", ":", ":99999999999"})
    CHECK_FALSE(load_machine(path + wrong));
}

}  // namespace tutti::topology
