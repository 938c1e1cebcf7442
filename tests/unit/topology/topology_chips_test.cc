// Checks that know what a GPU is called: each part of chips.def with all its links, with fewer on
// all, and with none; boxes of several parts, and parts joined by bridges.
#include <fmt/format.h>

#include <algorithm>

#include "support/catch.h"
#include "support/topology/topology_damages.h"
#include "topology/checks/check.h"
#include "topology/checks/chips.h"
#include "topology/graph/nccl_figures.h"

using namespace tutti;
using namespace tutti::topology;
using namespace tutti::topology::test;

namespace {

// A host of so many GPUs of a part, without links between them. Where only the chip is known, the
// part is not.
Graph host_of(const Chip& chip, int gpus, bool named = true) {
  Graph graph;
  const NodeId host = graph.add({NodeKind::kHost, "host0"});
  const NodeId numa = graph.add({NodeKind::kNuma, "host0/numa0", host, 0});
  for (int i = 0; i < gpus; ++i) {
    const NodeId gpu = graph.add({NodeKind::kGpu, fmt::format("host0/gpu{}", i), host, i});
    graph[gpu].facts["sm"] = std::to_string(chip.sm);
    if (named) {
      graph[gpu].facts["vendor"] = "0x10de";
      graph[gpu].facts["device"] = fmt::format("{:#06x}", chip.device);
    }
    graph.join(LinkKind::kPcie, numa, gpu, {24, Origin::kTable});
  }
  return graph;
}

void join(Graph& graph, const std::string& a, const std::string& b, int count) {
  graph.join(LinkKind::kNvlink, graph.find(a), graph.find(b), {20.0 * count, Origin::kTable})
      .count = count;
}

// The same with so many links from each GPU to one NVSwitch.
Graph switched(const Chip& chip, int links, bool named = true) {
  Graph graph = host_of(chip, 8, named);
  graph.add({NodeKind::kNvSwitch, "host0/nvswitch0", graph.find("host0")});
  for (int i = 0; i < 8; ++i) join(graph, fmt::format("host0/gpu{}", i), "host0/nvswitch0", links);
  return graph;
}

std::vector<Chip> all_chips() {
  return {
#define TUTTI_CHIP(device, name, sm, nvlinks) {device, name, sm, nvlinks},
#include "topology/checks/chips.def"
#undef TUTTI_CHIP
  };
}

bool has(const Findings& findings, std::string_view code, Severity severity) {
  for (const Finding& finding : findings) {
    if (finding.code == code && finding.severity == severity) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a part with the links that its board wires is well; with fewer a switch is missing") {
  for (const Chip& chip : all_chips()) {
    INFO(chip.name);
    CHECK(chip.nvlinks <= most_nvlinks(chip.sm));
    REQUIRE(chip_of(host_of(chip, 1).nodes.back()) != nullptr);
    CHECK(std::string(chip_of(host_of(chip, 1).nodes.back())->name) == chip.name);
    CHECK(check(host_of(chip, 1)).empty());
    if (chip.nvlinks == 0) {
      CHECK(check(host_of(chip, 8)).empty());
      continue;
    }
    CHECK(check(switched(chip, chip.nvlinks)).empty());
    CHECK(has(check(switched(chip, chip.nvlinks - 2)), "nvswitch-missing", kError));
    // As hwloc has it: what all links carry together, as one link.
    Graph folded = switched(chip, chip.nvlinks);
    for (Link& link : folded.links) {
      if (link.kind != LinkKind::kNvlink) continue;
      link.count = 1;
      link.forward = link.backward = {chip.nvlinks * nvlink_bandwidth(chip.sm).value,
                                      Origin::kReportedMaximum};
    }
    CHECK(check(folded).empty());
    // Where no file says what the part is called, one that is sold with as many links is likely.
    const Findings unnamed = check(switched(chip, chip.nvlinks, false));
    CHECK(exit_code(unnamed) == 0);
    CHECK(has(unnamed, "nvswitch-missing", kNote) == (chip.nvlinks < most_nvlinks(chip.sm)));
    CHECK(has(check(switched(chip, chip.nvlinks - 2, false)), "nvswitch-missing", kError));
  }
}

TEST_CASE("parts that have NVLinks, in a graph that has none: a warning for the host") {
  for (const Chip& chip : all_chips()) {
    INFO(chip.name);
    const Findings findings = check(host_of(chip, 8));
    if (chip.nvlinks == 0) continue;
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].code == "nvlink-hidden");
    CHECK(findings[0].where == "host0");
    CHECK(findings[0].what.find(fmt::format("8 GPUs have {} NVLinks", chip.nvlinks)) == 0);
    // What a probe said of that host in other words is not said twice.
    CHECK(check(host_of(chip, 8), {{{kWarning, "nvlink-hidden", "host0", "no NVML"}}}).size() == 1);
  }
}

TEST_CASE("GPUs of other chips are not measured by each other") {
  for (const bool named : {true, false}) {
    Graph graph = switched({0x2330, "H100 SXM5 80GB", 90, 18}, 18, named);
    Node other{NodeKind::kGpu, "host0/gpu8", graph.find("host0"), 8};
    other.facts["sm"] = "75";
    graph.join(LinkKind::kPcie, graph.find("host0/numa0"), graph.add(other), {12, Origin::kTable});
    CHECK(check(graph).empty());
  }
}

TEST_CASE("a GPU without a bridge beside bridged pairs is a note; one of a mesh is an error") {
  for (const bool named : {true, false}) {
    Graph graph = host_of({0x20b5, "A100 PCIe 80GB", 80, 0}, 5, named);
    join(graph, "host0/gpu0", "host0/gpu1", 12);
    join(graph, "host0/gpu2", "host0/gpu3", 12);
    const Findings findings = check(graph);
    CHECK(has(findings, "gpu-without-links", kNote));
    CHECK(exit_code(findings) == 0);
  }
  Graph mesh = make("dgx1-v100");
  const NodeId gpu = mesh.find("host0/gpu3");
  drop_links(mesh, [&](const Link& each) {
    return each.kind == LinkKind::kNvlink && (each.a == gpu || each.b == gpu);
  });
  CHECK(has(check(mesh), "gpu-without-links", kError));
}

TEST_CASE(
    "what a chip is made for is known of each model's GPUs, and of AMD's by their own names") {
  for (const Model* each : models()) {
    Graph graph = make(each->name.data());
    INFO(each->name);
    for (const NodeId gpu : graph.all(NodeKind::kGpu)) CHECK(pcie_generation(graph[gpu]) >= 8);
    set_rates(graph, NodeKind::kGpu, {2.5, 16});
    const bool on_pcie = std::any_of(graph.links.begin(), graph.links.end(), [&](const Link& link) {
      return link.pcie && graph[link.b].kind == NodeKind::kGpu;
    });
    CHECK(has(check(graph), "pcie-generation", kWarning) == on_pcie);
  }
  const auto made_for = [](const char* key, const char* value) {
    Node gpu{NodeKind::kGpu, "gpu"};
    gpu.facts["sm"] = "104";
    gpu.facts[key] = value;
    return pcie_generation(gpu);
  };
  CHECK(made_for("gcn", "910") == 16);
  CHECK(made_for("gcn", "gfx942") == 32);
  CHECK(made_for("gfx", "906") == 16);
  CHECK(made_for("gfx", "1100") == 0);
  CHECK(made_for("sm", "121") == 0);
}
