// Every reader of the registry: its own files, what strangers do to them, and what comes out.
#include <fmt/format.h>

#include <random>
#include <set>

#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"
#include "topology/readers/reader.h"
#include "topology/render/render.h"

using namespace tutti;
using namespace tutti::topology;
using test::machine_path;
using test::machine_text;

namespace {

Graph load(const std::string& name) {
  auto imported = import_file(machine_path(name));
  INFO((imported ? "" : imported.error().what));
  REQUIRE(imported);
  return std::move(imported->graph);
}

/// The one link between two nodes.
const Link& between(const Graph& graph, const char* a, const char* b) {
  const NodeId first = graph.find(a), second = graph.find(b);
  REQUIRE(first.exists());
  REQUIRE(second.exists());
  const Link* found = nullptr;
  for (const Link& link : graph.links) {
    if ((link.a == first && link.b == second) || (link.a == second && link.b == first)) {
      REQUIRE(found == nullptr);
      found = &link;
    }
  }
  INFO(a << " to " << b);
  REQUIRE(found != nullptr);
  return *found;
}

bool has(const Findings& findings, std::string_view code) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.code == code; });
}

}  // namespace

TEST_CASE("each file is recognised by its reader and by no other") {
  for (const auto& file : test::kMachineFiles) {
    const std::string text = machine_text(file.name);
    REQUIRE_FALSE(text.empty());
    for (const Reader* reader : readers()) {
      INFO(file.name << " by " << reader->name);
      CHECK(reader->recognises(text) == (reader->name == file.reader));
    }
    CHECK(find_reader(file.reader) != nullptr);
  }
  CHECK(find_reader("tarot") == nullptr);
}

TEST_CASE("each file is a graph that its text form keeps") {
  for (const auto& file : test::kMachineFiles) {
    INFO(file.name);
    const Graph graph = load(file.name);
    CHECK(graph.all(NodeKind::kGpu).size() >= 2);
    const auto again = parse_graph(print(graph), "again");
    REQUIRE(again);
    CHECK(*again == graph);
  }
}

TEST_CASE("JSON of every model and file is the same graph again") {
  const auto check = [](const Graph& graph) {
    const auto again = import(to_json(graph), "x.json");
    INFO((again ? "" : again.error().what));
    REQUIRE(again);
    CHECK(again->graph == graph);
  };
  for (const auto& file : test::kMachineFiles) check(load(file.name));
  for (const Model* each : models()) {
    const auto graph = model(std::string(each->name) + ":2");
    REQUIRE(graph);
    check(*graph);
  }
}

TEST_CASE("files that are cut or changed are graphs or errors") {
  std::mt19937 random(11);
  int errors = 0, graphs = 0;
  for (const auto& file : test::kMachineFiles) {
    const std::string whole = machine_text(file.name);
    for (int i = 0; i < 300; ++i) {
      std::string text = whole;
      if (i % 2 == 0) {
        text.resize(random() % text.size());
      } else {
        for (int k = 0; k < 4; ++k) text[random() % text.size()] = static_cast<char>(random());
      }
      const auto imported = find_reader(file.reader)->read(text, "cut");
      (imported ? graphs : errors) += 1;
      if (!imported) {
        INFO(imported.error().what);
        REQUIRE(imported.error().what.starts_with("cut"));
        REQUIRE(imported.error().what.find('\n') == std::string::npos);
      } else if (validate(imported->graph, "cut")) {
        const auto again = parse_graph(print(imported->graph), "again");
        INFO((again ? "" : again.error().what));
        REQUIRE(again);
        REQUIRE(*again == imported->graph);
      }
    }
  }
  CHECK(errors > 300);
  CHECK(graphs > 100);
}

TEST_CASE("ten megabytes of nesting is an error") {
  std::string nested = "<system><cpu numaid=\"0\">";
  while (nested.size() < 10'000'000) nested += "<pci busid=\"0000:00:00.0\">";
  const auto open = import(nested, "deep");
  REQUIRE_FALSE(open);
  CHECK(open.error().what.starts_with("deep:1: "));
  std::string closed = "<topology>";
  for (int i = 0; i < 300'000; ++i) closed += "<object>\n";
  for (int i = 0; i < 300'000; ++i) closed += "</object>";
  const auto deep = import(closed + "</topology>", "deep");
  REQUIRE_FALSE(deep);
  CHECK(deep.error().what == "deep:65: elements nested more than 64 deep");
}

TEST_CASE("what no reader knows is an error that lists what is known") {
  const auto imported = import("hello", "x.txt");
  REQUIRE_FALSE(imported);
  CHECK(imported.error().what ==
        "x.txt: no known form of a topology; known: tutti, json, nccl_xml, hwloc_xml, matrix, "
        "amd_smi");
  const auto missing = import_file("/nowhere/x.topo");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().what == "/nowhere/x.topo: No such file or directory");
}

TEST_CASE("what is taken for a topology and is none is called what it is") {
  const auto graphs = import("<graphs version=\"1\"><graph id=\"0\"/></graphs>", "graph.xml");
  REQUIRE_FALSE(graphs);
  CHECK_THAT(graphs.error().what, Catch::Contains("graph.xml: NCCL's graph file"));
  const auto log = import("n1:7:9 [0] NCCL INFO Channel 00/32 : 0 1 2 3\n", "log");
  REQUIRE_FALSE(log);
  CHECK_THAT(log.error().what, Catch::Contains("log: NCCL's log"));
  for (const auto* each : {&graphs, &log})
    CHECK_THAT((*each).error().what, Catch::Contains("NCCL_TOPO_DUMP_FILE"));
}

TEST_CASE("hwloc without drivers: GPUs are counted by address") {
  std::string text = machine_text("two_gpus.hwloc2.xml");
  for (std::size_t at; (at = text.find("\"nvml")) != std::string::npos;)
    text.replace(at, 5, "\"card");
  const auto imported = import(text, "x");
  if (!imported) return;  // A build without hwloc.
  std::string last;
  for (const int i : {0, 1}) {
    const NodeId gpu = imported->graph.find("host0/gpu" + std::to_string(i));
    REQUIRE(gpu.exists());
    CHECK(imported->graph[gpu].bus > last);
    last = imported->graph[gpu].bus;
  }
}

TEST_CASE("hwloc 2 and 3: ports and switches in turns, current rates, NVLink's matrix") {
  for (const char* name : {"two_gpus.hwloc2.xml", "two_gpus.hwloc3.xml"}) {
    INFO(name);
    const auto imported = import_file(machine_path(name));
    REQUIRE(imported);
    const Graph& graph = imported->graph;
    CHECK(graph[graph.find("host0/pci0000:15:01.0")].kind == NodeKind::kPciePort);
    CHECK(graph[graph.find("host0/pci0000:16:00.0")].kind == NodeKind::kPcieSwitch);
    CHECK(graph[graph.find("host0/pci0000:16:01.0")].kind == NodeKind::kPciePort);
    CHECK(between(graph, "host0/numa0", "host0/pci0000:15:01.0").kind == LinkKind::kInternal);
    // 15.753846 GB/s is 8 GT/s on 16 lanes after coding; NCCL's model makes 12 of it.
    CHECK(between(graph, "host0/pci0000:16:01.0", "host0/gpu0").forward ==
          Quantity{12, Origin::kReportedCurrent});
    CHECK(between(graph, "host0/pci0000:96:01.0", "host0/gpu1").forward ==
          Quantity{1.5, Origin::kReportedCurrent});
    CHECK(between(graph, "host0/numa1", "host0/pci0000:96:01.0").kind == LinkKind::kInternal);
    CHECK(between(graph, "host0/gpu0", "host0/gpu1").forward ==
          Quantity{80, Origin::kReportedMaximum});
    CHECK(between(graph, "host0/package0", "host0/package1").kind == LinkKind::kSocket);
    CHECK(graph[graph.find("host0/mlx5_0")].bus == "0000:18:00.0");
    CHECK(graph[graph.find("host0/gpu0")].facts.at("gpumodel") == "H100");
    CHECK(has(imported->findings, "pcie-current-only"));
  }
}

TEST_CASE("nvidia-smi topo -m: a tree that agrees with its classes, all figures assumed") {
  const auto imported = import_file(machine_path("four_gpus.matrix.txt"));
  REQUIRE(imported);
  const Graph& graph = imported->graph;
  CHECK(has(imported->findings, "figures-assumed"));
  // GPU0 and NIC0 are PIX apart, GPU1 and NIC0 PXB, GPU3 SYS from all but NIC1.
  between(graph, "host0/switch1", "host0/gpu0");
  between(graph, "host0/switch1", "host0/mlx5_0");
  between(graph, "host0/switch2", "host0/gpu1");
  between(graph, "host0/switch0", "host0/switch1");
  between(graph, "host0/switch0", "host0/switch2");
  // GPU2 is PHB from these, so on their host bridge; GPU3 and NIC1 are NODE apart.
  const auto bridge = [&](const char* port) {
    return fact(graph[graph.find(port)], "host_bridge");
  };
  between(graph, "host0/numa0", "host0/port0");
  between(graph, "host0/port0", "host0/switch0");
  between(graph, "host0/port1", "host0/gpu2");
  between(graph, "host0/numa1", "host0/port2");
  between(graph, "host0/port2", "host0/gpu3");
  between(graph, "host0/port3", "host0/mlx5_1");
  CHECK(bridge("host0/port0") == bridge("host0/port1"));
  CHECK(bridge("host0/port2") != bridge("host0/port3"));
  CHECK(between(graph, "host0/gpu0", "host0/gpu1").count == 4);
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::kPort || link.kind == LinkKind::kInternal) continue;
    CHECK(link.forward.origin == Origin::kAssumed);
  }
}

TEST_CASE("a name of a file is one line of an error, whatever is in it") {
  const auto refusal = [](std::string_view text) {
    const auto imported = import(text, "x.json");
    return imported ? std::string("accepted") : imported.error().what;
  };
  CHECK(refusal(R"({"nodes": [{"name": "a\"\n\u001b[2J", "kind": "none"}]})") ==
        "x.json: JSON: 'a\"??[2J': its kind is none of a node");
}

TEST_CASE("NVLinks to more peers than a chip has links lead to switches") {
  const auto imported = import(
      "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n"
      "GPU0\tX\tNV18\tNV18\t0-3\nGPU1\tNV18\tX\tNV18\t0-3\nGPU2\tNV18\tNV18\tX\t0-3\n",
      "m");
  REQUIRE(imported);
  CHECK(between(imported->graph, "host0/gpu1", "host0/nvswitch0").count == 18);
  CHECK(imported->graph.all(NodeKind::kNvSwitch).size() == 1);
}

TEST_CASE("rocm-smi --showtopo: xGMI pairs one hop apart, NUMA nodes") {
  const Graph graph = load("showtopo.rocm.txt");
  CHECK(between(graph, "host0/gpu0", "host0/gpu1").kind == LinkKind::kXgmi);
  between(graph, "host0/numa0", "host0/gpu0");
  between(graph, "host0/numa1", "host0/gpu2");
}

TEST_CASE("tables that say something else are refused") {
  const auto refusal = [](std::string_view text) {
    const auto imported = import(text, "m");
    return imported ? std::string("accepted") : imported.error().what;
  };
  CHECK(refusal("  GPU0 GPU1\nGPU0 X OK\nGPU1 OK X\n") ==
        "m:4: this is `nvidia-smi topo -p2p`, which says what is allowed, not what is joined; use "
        "`nvidia-smi topo -m`");
  CHECK(refusal("GPU0 is broken\n") == "m:2: no table with columns GPU0, GPU1, ...");
  CHECK(refusal("  GPU0 GPU1\n") ==
        "m:2: no rows with classes (NV#, PIX, PXB, PHB, NODE, SYS, XGMI, PCIE)");
}
