// Every rule of validate(): a graph that is right, changed in one place.
#include <algorithm>

#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "topology/graph/text.h"
#include "topology/readers/reader.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

Graph good() {
  auto graph = parse_graph(test::machine_text("two_nodes.topo"), "good");
  REQUIRE(graph);
  REQUIRE(validate(*graph, "x"));
  CHECK(validate(*graph, "x")->empty());
  return *std::move(graph);
}

std::string refusal(const Graph& graph) {
  const auto findings = validate(graph, "x");
  return findings ? "accepted" : findings.error().what;
}

const Finding* find(const Findings& findings, std::string_view code) {
  const auto at = std::find_if(findings.begin(), findings.end(),
                               [&](const Finding& finding) { return finding.code == code; });
  return at == findings.end() ? nullptr : &*at;
}

Link& nvlink(Graph& graph) { return graph.links.back(); }

}  // namespace

TEST_CASE("impossible: names and addresses") {
  Graph graph = good();
  graph.nodes[3].name = graph.nodes[2].name;
  CHECK(refusal(graph) == "x: two nodes are called host0/gpu0");
  graph = good();
  graph.nodes[3].name = "a b";
  CHECK(refusal(graph) == "x: node name 'a b' is empty or has white space");
  graph = good();
  graph.nodes[3].bus = graph.nodes[2].bus;
  CHECK(refusal(graph) == "x: host0/gpu1: bus address 0000:07:00.0 is another node's too");
  graph = good();
  graph.nodes[3].host = {2};
  CHECK(refusal(graph) == "x: the host of host0/gpu1 is no host");
}

TEST_CASE("impossible: links to itself, to nothing, and of no size") {
  Graph graph = good();
  nvlink(graph).b = nvlink(graph).a;
  CHECK(refusal(graph) == "x: host0/gpu0 has a nvlink link to itself");
  graph = good();
  nvlink(graph).b = {99};
  CHECK(refusal(graph) == "x: a nvlink link to nothing");
  graph = good();
  nvlink(graph).b = {};
  CHECK(refusal(graph) == "x: a nvlink link to nothing");
  graph = good();
  nvlink(graph).count = 0;
  CHECK(refusal(graph) == "x: nvlink link from host0/gpu0 to host0/gpu1: count 0");
  graph = good();
  nvlink(graph).backward.value = -1;
  CHECK(refusal(graph) == "x: nvlink link from host0/gpu0 to host0/gpu1: -1 is no figure");
}

TEST_CASE("impossible: more NVLinks than the chip has") {
  for (const auto& [sm, most] : {std::pair{"60", 4}, {"70", 6}, {"80", 12}, {"90", 18}, {"", 18}}) {
    Graph graph = good();
    graph.nodes[2].facts["sm"] = graph.nodes[3].facts["sm"] = sm;
    nvlink(graph).count = most;
    CHECK(refusal(graph) == "accepted");
    nvlink(graph).count = most + 1;
    INFO(sm);
    CHECK(refusal(graph).starts_with("x: host0/gpu0 has " + std::to_string(most + 1) +
                                     " NVLinks, and "));
  }
}

TEST_CASE("impossible: PCI bridges in a circle") {
  Graph graph = good();
  const NodeId a = graph.add({NodeKind::kPcieSwitch, "a", {}, -1, "", {}});
  const NodeId b = graph.add({NodeKind::kPciePort, "b", {}, -1, "", {}});
  const NodeId c = graph.add({NodeKind::kPcieSwitch, "c", {}, -1, "", {}});
  for (const auto& [from, to] : {std::pair{a, b}, {b, c}}) {
    graph.add(Link{LinkKind::kPcie, from, to, 1, {1, Origin::kTable}, {1, Origin::kTable}, {}, {}});
  }
  CHECK(refusal(graph) == "accepted");
  graph.add(Link{LinkKind::kPcie, c, a, 1, {1, Origin::kTable}, {1, Origin::kTable}, {}, {}});
  CHECK(refusal(graph) == "x: PCI bridges in a circle, closed by c and a");
}

TEST_CASE("doubtful: unequal directions, unknown rates") {
  Graph graph = good();
  nvlink(graph).backward.value = 120;
  auto findings = validate(graph, "x");
  REQUIRE(findings);
  REQUIRE(find(*findings, "unequal-reverse") != nullptr);
  CHECK(find(*findings, "unequal-reverse")->loss == Approx(0.5));
  CHECK(find(*findings, "unequal-reverse")->evidence == "240 GB/s there, 120 GB/s back");
  graph = good();
  nvlink(graph).backward = {};
  findings = validate(graph, "x");
  REQUIRE(findings);
  REQUIRE(find(*findings, "rate-unknown") != nullptr);
  CHECK(find(*findings, "rate-unknown")->what == "the rate of 1 nvlink link is not known");
}

TEST_CASE("doubtful: one GPU without links among linked ones") {
  Graph graph = good();
  for (const char* name : {"gpu2", "gpu3"}) {
    graph.add(Node{NodeKind::kGpu, name, {0}, -1, "", {}});
  }
  // One of three or more linked ones' company is a defect, two may be a machine with bridges.
  auto findings = validate(graph, "x");
  REQUIRE(findings);
  REQUIRE(find(*findings, "gpu-without-links") != nullptr);
  CHECK(find(*findings, "gpu-without-links")->severity == Severity::kNote);
  // So are two bridged pairs and one GPU beside them, and a GPU of another chip.
  Graph pairs = graph;
  for (const char* name : {"gpu4", "other"}) pairs.add(Node{NodeKind::kGpu, name, {0}, -1, "", {}});
  for (const NodeId gpu : pairs.all(NodeKind::kGpu)) pairs[gpu].facts["sm"] = "80";
  pairs.nodes.back().facts["sm"] = "75";
  Link second = nvlink(graph);
  second.a = graph.find("gpu2");
  second.b = graph.find("gpu3");
  pairs.add(second);
  findings = validate(pairs, "x");
  REQUIRE(findings);
  for (const Finding& finding : *findings) {
    INFO(finding.where);
    CHECK(finding.severity == Severity::kNote);
    CHECK(finding.where != "other");
  }
  Link more = nvlink(graph);
  more.a = graph.find("gpu2");
  more.b = graph.find("host0/gpu0");
  more.count = 1;
  nvlink(graph).count = 11;
  graph.add(more);
  findings = validate(graph, "x");
  REQUIRE(findings);
  REQUIRE(find(*findings, "gpu-without-links") != nullptr);
  CHECK(find(*findings, "gpu-without-links")->severity == Severity::kError);
  CHECK(find(*findings, "gpu-without-links")->where == "gpu3");
  REQUIRE(find(*findings, "gpu-fewer-links") != nullptr);
  CHECK(find(*findings, "gpu-fewer-links")->where == "host0/gpu1");
}
