// Paths: classes as NCCL has them, widths and lengths, and where no path may go.
#include "topology/paths.h"

#include "support/catch.h"
#include "support/topology_graphs.h"

namespace tutti::topology {
namespace {

using test::add;
using test::join;

Path between(const Graph& graph, std::string_view a, std::string_view b) {
  REQUIRE(graph.find(a).exists());
  REQUIRE(graph.find(b).exists());
  return best_path(graph, graph.find(a), graph.find(b));
}

// "LOC", then what it goes through.
std::string in_words(const Graph& graph, const Path& path) {
  std::string text(to_string(path.path_class));
  for (const NodeId id : path.nodes) text += " " + graph[id].name;
  return text;
}

TEST_CASE("paths on an NVSwitch and on a cube mesh") {
  const Graph box = test::nvswitch_box();
  const Path path = between(box, "host0/gpu1", "host0/gpu5");
  REQUIRE(in_words(box, path) == "NVL host0/gpu1 host0/nvswitch0 host0/gpu5");
  REQUIRE(path.bandwidth == Quantity{450, Origin::kTable});
  REQUIRE(in_words(box, between(box, "host0/gpu1", "host0/gpu1")) == "LOC host0/gpu1");

  const Graph mesh = test::dgx1();
  REQUIRE(between(mesh, "host0/gpu0", "host0/gpu3").bandwidth.value == 40);
  // 0 to 5: by 1 the first link is single, by 4 the second; the first in the graph's order wins.
  const Path relayed = between(mesh, "host0/gpu0", "host0/gpu5");
  REQUIRE(in_words(mesh, relayed) == "NVB host0/gpu0 host0/gpu1 host0/gpu5");
  REQUIRE(relayed.bandwidth.value == 20);
  // 3 to 4 by 0: both links are double, so it is wider than by 7.
  REQUIRE(in_words(mesh, between(mesh, "host0/gpu3", "host0/gpu4")) ==
          "NVB host0/gpu3 host0/gpu0 host0/gpu4");
}

TEST_CASE("an NVLink path through two GPUs is none") {
  Graph graph;
  for (int i = 0; i < 4; ++i) add(graph, NodeKind::kGpu, "gpu" + std::to_string(i));
  for (std::uint32_t i = 0; i < 3; ++i) join(graph, LinkKind::kNvlink, {i}, {i + 1}, 20);
  REQUIRE(between(graph, "gpu0", "gpu2").path_class == PathClass::kNvb);
  const Path path = between(graph, "gpu0", "gpu3");
  REQUIRE(path.path_class == PathClass::kDis);
  REQUIRE(path.nodes.empty());
  REQUIRE_FALSE(path.bandwidth.known());
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
  REQUIRE(path.bandwidth.value == 30);
}

TEST_CASE("paths of a PCIe box") {
  const Graph graph = test::pcie_box();
  REQUIRE(in_words(graph, between(graph, "host0/gpu0", "host0/gpu1")) ==
          "PIX host0/gpu0 host0/switch0 host0/gpu1");
  REQUIRE(in_words(graph, between(graph, "host0/gpu0", "host0/gpu2")) ==
          "PHB host0/gpu0 host0/switch0 host0/numa0 host0/switch1 host0/gpu2");
  const Path far = between(graph, "host0/gpu0", "host0/gpu7");
  REQUIRE(far.path_class == PathClass::kSys);
  REQUIRE(far.bandwidth.value == 10);
  REQUIRE(far.edges.size() == 5);
  REQUIRE(far.nodes.size() == 6);
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
  REQUIRE(between(graph, "gpu0", "gpu1").path_class == PathClass::kPxb);
}

TEST_CASE("paths over the network go by the own NIC, and through no GPU") {
  const Graph graph = test::rails(2, 4, 300, 25);
  const Path own = between(graph, "host0/gpu1", "host1/gpu1");
  REQUIRE(in_words(graph, own) ==
          "NET host0/gpu1 host0/pcie1 host0/nic1 rail1 host1/nic1 host1/pcie1 host1/gpu1");
  REQUIRE(own.bandwidth.value == 25);
  REQUIRE(between(graph, "host0/gpu1", "host1/gpu2").path_class == PathClass::kDis);
  REQUIRE(between(graph, "host0/gpu1", "host0/nic1").path_class == PathClass::kPix);
  REQUIRE(between(graph, "host0/gpu1", "host0/nic2").path_class == PathClass::kDis);
}

TEST_CASE("chip-to-chip: C2C to the CPU, P2C to its devices, both ways") {
  Graph graph;
  for (const std::string name : {"0", "1"}) {
    const NodeId numa = add(graph, NodeKind::kNuma, "numa" + name);
    join(graph, LinkKind::kC2c, add(graph, NodeKind::kGpu, "gpu" + name), numa, 300);
    join(graph, LinkKind::kPcie, numa, add(graph, NodeKind::kNic, "nic" + name), 48);
  }
  join(graph, LinkKind::kSocket, graph.find("numa0"), graph.find("numa1"), 100);
  REQUIRE(between(graph, "gpu0", "numa0").path_class == PathClass::kC2c);
  REQUIRE(between(graph, "gpu0", "nic0").path_class == PathClass::kP2c);
  REQUIRE(between(graph, "nic0", "gpu0").path_class == PathClass::kP2c);
  REQUIRE(between(graph, "gpu0", "nic1").path_class == PathClass::kSys);
  REQUIRE(between(graph, "nic1", "gpu0").path_class == PathClass::kSys);
}

TEST_CASE("a path is as wide, and of the same class, both ways where links are") {
  for (const Graph& graph : {test::dgx1(), test::pcie_box(), test::rails(2, 4, 300, 25)}) {
    const Adjacency adjacency(graph);
    for (std::uint32_t a = 0; a < graph.nodes.size(); ++a) {
      for (std::uint32_t b = 0; b < a; ++b) {
        const Path there = PathSearch(graph, adjacency, {a}).to({b});
        const Path back = PathSearch(graph, adjacency, {b}).to({a});
        INFO(in_words(graph, there) << " | " << in_words(graph, back));
        REQUIRE(there.path_class == back.path_class);
        REQUIRE(there.bandwidth == back.bandwidth);
        REQUIRE(there.edges.size() == back.edges.size());
      }
    }
  }
}

TEST_CASE("unknown bandwidths limit nothing and are not made up; latencies add up") {
  Graph graph = test::nvswitch_box(3, 100);
  graph.links[0].forward = graph.links[0].backward = {};
  graph.links[0].latency_us = {0.5, Origin::kTable};
  graph.links[1].latency_us = {0.25, Origin::kTable};
  const Path path = between(graph, "host0/gpu0", "host0/gpu1");
  REQUIRE(path.bandwidth == Quantity{100, Origin::kTable});
  REQUIRE(path.latency_us == 0.75);
  graph.links[1].forward = graph.links[1].backward = {};
  REQUIRE_FALSE(between(graph, "host0/gpu0", "host0/gpu1").bandwidth.known());
}

}  // namespace
}  // namespace tutti::topology
