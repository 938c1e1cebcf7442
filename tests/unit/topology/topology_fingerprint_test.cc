// Fingerprints: alike for the same machine after a reboot, different for different machines.
#include "topology/probe/fingerprint.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "support/catch.h"
#include "topology/models/model.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

Graph make(std::string_view spec) {
  auto made = model(spec);
  REQUIRE(made);
  return *std::move(made);
}

/// The same machine as another boot might show it: nodes in another order, with other names, bus
/// addresses and states; links the other way round where they have no direction.
Graph rebooted(const Graph& graph, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint32_t> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::uint32_t> place(order.size());
  Graph next;
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  for (const std::uint32_t old : order) {
    Node node = graph.nodes[old];
    node.name = "node" + std::to_string(random());
    node.bus = node.bus.empty() ? "" : std::to_string(random());
    node.index = static_cast<int>(random() % 100);
    node.facts["hostname"] = std::to_string(random());
    if (node.host.exists()) node.host = NodeId{place[node.host.value]};
    next.nodes.push_back(node);
  }
  for (Link link : graph.links) {
    link.a = NodeId{place[link.a.value]};
    link.b = NodeId{place[link.b.value]};
    if (link.kind != LinkKind::kPcie && link.kind != LinkKind::kPort && random() % 2 == 0) {
      std::swap(link.a, link.b);
      std::swap(link.forward, link.backward);
    }
    if (link.pcie) link.pcie->current = {2.5, 1};  // Asleep.
    next.links.push_back(link);
  }
  std::shuffle(next.links.begin(), next.links.end(), random);
  next.notes.emplace_back("another boot");
  return next;
}

TEST_CASE("the same machine has the same fingerprint, however it is read; another has another") {
  std::map<std::uint64_t, std::string_view> seen;
  for (const Model* one : models()) {
    INFO(one->name);
    const Graph graph = make(one->name);
    const std::uint64_t print = fingerprint(graph);
    INFO("as of " << seen[print]);
    CHECK(seen[print].empty());
    seen[print] = one->name;
    for (std::uint64_t seed = 0; seed < 5; ++seed)
      CHECK(fingerprint(rebooted(graph, seed)) == print);
  }
}

TEST_CASE("a part that is missing, slower or of another type is another machine") {
  const Graph graph = make("hgx-h100");
  const std::uint64_t print = fingerprint(graph);
  for (std::size_t i = 0; i < graph.links.size(); ++i) {
    Graph other = graph;
    other.links.erase(other.links.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK(fingerprint(other) != print);
    other = graph;
    other.links[i].count += 1;
    CHECK(fingerprint(other) != print);
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const char* fact : {"cpu", "cpus", "device", "distances"}) {
      Graph other = graph;
      other.nodes[i].facts[fact] += "x";
      CHECK(fingerprint(other) != print);
    }
  }
}

TEST_CASE("this machine's fingerprint stays") {
  CHECK(fingerprint_of_this_machine() == fingerprint_of_this_machine());
}

}  // namespace
