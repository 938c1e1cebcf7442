// Paths: classes as NCCL has them, widths and lengths, and where no path may go.
#include "topology/graph/paths.h"

#include <algorithm>
#include <random>

#include "support/catch.h"
#include "support/topology/topology_graphs.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;

Path between(const Graph& graph, std::string_view a, std::string_view b) {
  REQUIRE(graph.find(a).exists());
  REQUIRE(graph.find(b).exists());
  return best_path(graph, Adjacency(graph), graph.find(a), graph.find(b));
}

// Both ends included; empty if not connected.
std::vector<NodeId> nodes_of(const Path& path) {
  if (path.type == PathClass::kNone) return {};
  std::vector<NodeId> nodes{path.from};
  for (const Adjacency::Edge& edge : path.edges) nodes.push_back(edge.to);
  return nodes;
}

// "LOC", then what it goes through.
std::string in_words(const Graph& graph, const Path& path) {
  std::string text(name_of(path.type));
  for (const NodeId id : nodes_of(path)) text += " " + graph[id].name;
  return text;
}

TEST_CASE("paths on an NVSwitch and on a cube mesh") {
  const Graph box = test::nvswitch_box();
  const Path path = between(box, "host0/gpu1", "host0/gpu5");
  REQUIRE(in_words(box, path) == "NVL host0/gpu1 host0/nvswitch0 host0/gpu5");
  REQUIRE(path.gigabytes_per_second == 450);
  REQUIRE(in_words(box, between(box, "host0/gpu1", "host0/gpu1")) == "LOC host0/gpu1");

  const Graph mesh = test::dgx1();
  REQUIRE(between(mesh, "host0/gpu0", "host0/gpu3").gigabytes_per_second == 40);
  // 0 to 5: by 1 the first link is single, by 4 the second; the first in the graph's order wins.
  const Path relayed = between(mesh, "host0/gpu0", "host0/gpu5");
  REQUIRE(in_words(mesh, relayed) == "NVB host0/gpu0 host0/gpu1 host0/gpu5");
  REQUIRE(relayed.gigabytes_per_second == 20);
  // 3 to 4 by 0: both links are double, so it is wider than by 7.
  REQUIRE(in_words(mesh, between(mesh, "host0/gpu3", "host0/gpu4")) ==
          "NVB host0/gpu3 host0/gpu0 host0/gpu4");
}

TEST_CASE("an NVLink path through two GPUs is none") {
  Graph graph;
  for (int i = 0; i < 4; ++i) add(graph, NodeKind::kGpu, "gpu" + std::to_string(i));
  for (std::uint32_t i = 0; i < 3; ++i) join(graph, LinkKind::kNvlink, {i}, {i + 1}, 20);
  REQUIRE(between(graph, "gpu0", "gpu2").type == PathClass::kRelayed);
  const Path path = between(graph, "gpu0", "gpu3");
  REQUIRE(path.type == PathClass::kNone);
  REQUIRE(nodes_of(path).empty());
  REQUIRE(path.gigabytes_per_second == 0);
}

TEST_CASE("the widest way wins over the one that begins widest") {
  Graph graph;
  for (int i = 0; i < 4; ++i) add(graph, NodeKind::kGpu, "gpu" + std::to_string(i));
  join(graph, LinkKind::kNvlink, {0}, {1}, 40);
  join(graph, LinkKind::kNvlink, {1}, {3}, 10);
  join(graph, LinkKind::kNvlink, {0}, {2}, 30);
  join(graph, LinkKind::kNvlink, {2}, {3}, 30);
  const Path path = between(graph, "gpu0", "gpu3");
  REQUIRE(in_words(graph, path) == "NVB gpu0 gpu2 gpu3");
  REQUIRE(path.gigabytes_per_second == 30);
}

TEST_CASE("paths of a PCIe box") {
  const Graph graph = test::pcie_box();
  REQUIRE(in_words(graph, between(graph, "host0/gpu0", "host0/gpu1")) ==
          "PIX host0/gpu0 host0/switch0 host0/gpu1");
  REQUIRE(in_words(graph, between(graph, "host0/gpu0", "host0/gpu2")) ==
          "PHB host0/gpu0 host0/switch0 host0/numa0 host0/switch1 host0/gpu2");
  const Path far = between(graph, "host0/gpu0", "host0/gpu7");
  REQUIRE(far.type == PathClass::kSystem);
  REQUIRE(far.gigabytes_per_second == 10);
  REQUIRE(far.edges.size() == 5);
  REQUIRE(nodes_of(far).size() == 6);
}

TEST_CASE("two PCIe switches in a row, ports between them, are PXB") {
  Graph graph;
  const NodeId top = add(graph, NodeKind::kPcieSwitch, "top");
  for (const std::string name : {"0", "1"}) {
    const NodeId port = add(graph, NodeKind::kPciePort, "port" + name);
    const NodeId low = add(graph, NodeKind::kPcieSwitch, "low" + name);
    join(graph, LinkKind::kInternal, top, port, 100);
    join(graph, LinkKind::kPcie, port, low, 24);
    join(graph, LinkKind::kPcie, low, add(graph, NodeKind::kGpu, "gpu" + name), 24);
  }
  REQUIRE(between(graph, "gpu0", "gpu1").type == PathClass::kSwitches);
}

TEST_CASE("paths over the network go by the own NIC, and through no GPU") {
  const Graph graph = test::rails(2, 4, 300, 25);
  const Path own = between(graph, "host0/gpu1", "host1/gpu1");
  REQUIRE(in_words(graph, own) ==
          "NET host0/gpu1 host0/pcie1 host0/nic1 rail1 host1/nic1 host1/pcie1 host1/gpu1");
  REQUIRE(own.gigabytes_per_second == 25);
  REQUIRE(between(graph, "host0/gpu1", "host1/gpu2").type == PathClass::kNone);
  REQUIRE(between(graph, "host0/gpu1", "host0/nic1").type == PathClass::kSwitch);
  REQUIRE(between(graph, "host0/gpu1", "host0/nic2").type == PathClass::kProxy);
  const Path alone = best_path(graph, Adjacency(graph), graph.find("host0/gpu1"),
                               graph.find("host0/nic2"), {.relays = false});
  REQUIRE(alone.type == PathClass::kNone);
}

TEST_CASE("chip-to-chip: C2C to the CPU, P2C to its devices, both ways") {
  Graph graph;
  for (const std::string name : {"0", "1"}) {
    const NodeId numa = add(graph, NodeKind::kNuma, "numa" + name);
    join(graph, LinkKind::kC2c, add(graph, NodeKind::kGpu, "gpu" + name), numa, 300);
    join(graph, LinkKind::kPcie, numa, add(graph, NodeKind::kNic, "nic" + name), 48);
  }
  join(graph, LinkKind::kSocket, graph.find("numa0"), graph.find("numa1"), 100);
  REQUIRE(between(graph, "gpu0", "numa0").type == PathClass::kC2c);
  REQUIRE(between(graph, "gpu0", "nic0").type == PathClass::kC2cPcie);
  REQUIRE(between(graph, "nic0", "gpu0").type == PathClass::kC2cPcie);
  REQUIRE(between(graph, "gpu0", "nic1").type == PathClass::kSystem);
  REQUIRE(between(graph, "nic1", "gpu0").type == PathClass::kSystem);
}

TEST_CASE("a path is as wide, and of the same class, both ways where links are") {
  for (const Graph& graph : {test::dgx1(), test::pcie_box(), test::rails(2, 4, 300, 25)}) {
    const Adjacency adjacency(graph);
    for (std::uint32_t a = 0; a < graph.nodes.size(); ++a) {
      for (std::uint32_t b = 0; b < a; ++b) {
        const Path there = best_path(graph, adjacency, {a}, {b});
        const Path back = best_path(graph, adjacency, {b}, {a});
        INFO(in_words(graph, there) << " | " << in_words(graph, back));
        REQUIRE(there.type == back.type);
        REQUIRE(there.gigabytes_per_second == back.gigabytes_per_second);
        REQUIRE(there.edges.size() == back.edges.size());
      }
    }
  }
}

TEST_CASE("a path's width is that of its links in the direction it goes") {
  std::mt19937 random(5);
  for (int i = 0; i < 50; ++i) {
    Graph graph;
    for (int n = 0; n < 6; ++n) add(graph, NodeKind::kPcieSwitch, "n" + std::to_string(n));
    for (int n = 0; n < 12; ++n) {
      const auto a = static_cast<std::uint32_t>(random() % 6);
      const auto b = static_cast<std::uint32_t>(random() % 6);
      if (a == b) continue;
      join(graph, LinkKind::kPcie, {a}, {b}, 1 + static_cast<int>(random() % 30));
      graph.links.back().backward.value = 1 + static_cast<int>(random() % 30);
    }
    const Adjacency adjacency(graph);
    for (std::uint32_t from = 0; from < 6; ++from) {
      for (std::uint32_t to = 0; to < 6; ++to) {
        const Path path = best_path(graph, adjacency, {from}, {to});
        if (path.edges.empty()) continue;
        NodeId here{from};
        double narrowest = 1e9;
        for (const Adjacency::Edge& edge : path.edges) {
          const Link& link = graph.links[edge.link];
          REQUIRE((link.a == here ? link.b : link.a) == edge.to);
          const double rate = (link.a == here ? link.forward : link.backward).value;
          narrowest = std::min(narrowest, rate);
          here = edge.to;
        }
        INFO("graph " << i << ", " << from << " to " << to);
        REQUIRE(here == NodeId{to});
        REQUIRE(path.gigabytes_per_second == narrowest);
      }
    }
  }
}

TEST_CASE("paths to many nodes at once are those to each by itself") {
  for (const Graph& graph : {test::dgx1(), test::pcie_box(), test::rails(2, 4, 300, 25)}) {
    const Adjacency adjacency(graph);
    const auto all = graph.all();
    for (const NodeId from : all) {
      for (const PathOptions& options :
           {PathOptions{}, PathOptions{.relays = false}, PathOptions{.worst = PathClass::kHost}}) {
        const auto together = best_paths(graph, adjacency, from, all, options);
        REQUIRE(together.size() == all.size());
        for (const NodeId to : all) {
          const Path& path = together[to.value];
          const Path alone = best_path(graph, adjacency, from, to, options);
          REQUIRE(path.type == alone.type);
          REQUIRE(path.ways == alone.ways);
          REQUIRE(in_words(graph, path) == in_words(graph, alone));
        }
      }
    }
  }
}

TEST_CASE("PIX passes one PCIe switch, PXB more") {
  Graph graph;
  add(graph, NodeKind::kGpu, "gpu0");
  for (std::uint32_t n = 1; n <= 3; ++n) {
    add(graph, NodeKind::kPcieSwitch, "switch" + std::to_string(n));
    add(graph, NodeKind::kNic, "nic" + std::to_string(n));
    const NodeId sw = graph.find("switch" + std::to_string(n));
    join(graph, LinkKind::kPcie,
         n == 1 ? graph.find("gpu0") : graph.find("switch" + std::to_string(n - 1)), sw, 24);
    join(graph, LinkKind::kPcie, sw, graph.find("nic" + std::to_string(n)), 24);
  }
  REQUIRE(between(graph, "gpu0", "nic1").type == PathClass::kSwitch);
  REQUIRE(between(graph, "gpu0", "nic2").type == PathClass::kSwitches);
  REQUIRE(between(graph, "gpu0", "nic3").type == PathClass::kSwitches);
}

TEST_CASE("unknown bandwidths limit nothing and are not made up; latencies add up") {
  Graph graph = test::nvswitch_box(3, 100);
  graph.links[0].forward = graph.links[0].backward = {};
  graph.links[0].latency_us = {0.5, Origin::kTable};
  graph.links[1].latency_us = {0.25, Origin::kTable};
  const Path path = between(graph, "host0/gpu0", "host0/gpu1");
  REQUIRE(path.gigabytes_per_second == 100);
  REQUIRE(path.latency_us == 0.75);
  graph.links[1].forward = graph.links[1].backward = {};
  REQUIRE(between(graph, "host0/gpu0", "host0/gpu1").gigabytes_per_second == 0);
}

}  // namespace
}  // namespace tutti::topology
