// What copies between GPUs say of the links of a graph (tools/topo/gpu_rates.h).
#include "tools/topo/gpu_rates.h"

#include <functional>

#include "support/catch.h"
#include "topology/models/model.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::Link;
using topology::LinkKind;
using topology::NodeId;
using topology::NodeKind;
using topology::Origin;
using topology::Quantity;

Graph machine(const char* model) {
  auto graph = topology::model(model);
  REQUIRE(graph);
  return *std::move(graph);
}

/// All GPUs of the graph, with the host at `host` GB/s, and with each other at what `pair` says.
GpuRates rates_of(const Graph& graph, double host,
                  const std::function<double(std::size_t, std::size_t)>& pair) {
  GpuRates rates;
  for (const NodeId gpu : graph.all(NodeKind::kGpu))
    rates.gpus.push_back({graph[gpu].bus, host, host, 3000, ""});
  for (std::size_t from = 0; from < rates.gpus.size(); ++from) {
    for (std::size_t to = 0; to < rates.gpus.size(); ++to) {
      if (from != to) rates.pairs.push_back({from, to, pair(from, to), false});
    }
  }
  return rates;
}

/// What the links of a kind carry from one node to another, by their names; 0: no such link.
Quantity carried(const Graph& graph, const std::string& from, const std::string& to) {
  for (const Link& link : graph.links) {
    const std::string &a = graph[link.a].name, &b = graph[link.b].name;
    if (a == "host0/" + from && b == "host0/" + to) return link.forward;
    if (b == "host0/" + from && a == "host0/" + to) return link.backward;
  }
  return {};
}

int measured(const Graph& graph, LinkKind kind) {
  int count = 0;
  for (const Link& link : graph.links) {
    for (const Quantity& at : {link.forward, link.backward})
      count += link.kind == kind && at.origin == Origin::kMeasured ? 1 : 0;
  }
  return count;
}

/// NVLinks of a DGX-1: what it has, but for one pair.
double dgx1_rate(std::size_t from, std::size_t to) {
  static const Graph graph = machine("dgx1-v100");
  const auto name = [](std::size_t gpu) { return "gpu" + std::to_string(gpu); };
  const double links = carried(graph, name(from), name(to)).value;
  return links > 0 ? links : 6;
}

bool has(const std::string& text, const std::string& words) {
  INFO(text);
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

TEST_CASE("a pair with NVLinks of its own gives them its rate") {
  Graph graph = machine("dgx1-v100");
  const std::string said =
      write_rates(graph, rates_of(graph, 11, [](std::size_t from, std::size_t to) {
                    return from == 4 && to == 7 ? 8 : dgx1_rate(from, to);
                  }));
  CHECK(carried(graph, "gpu4", "gpu7") == Quantity{8, Origin::kMeasured});
  CHECK(carried(graph, "gpu7", "gpu4") == Quantity{40, Origin::kMeasured});
  CHECK(carried(graph, "gpu0", "gpu1") == Quantity{20, Origin::kMeasured});
  CHECK(measured(graph, LinkKind::kNvlink) == 32);
  CHECK(said.find("blame") == std::string::npos);
  CHECK(fact(graph[graph.find("host0/gpu3")], "memory_gbs") == "3000.00");
}

TEST_CASE("what all pairs of a GPU have in common is its own links") {
  Graph graph = machine("dgx-a100");
  const std::string said = write_rates(
      graph,
      rates_of(graph, 22, [](std::size_t from, std::size_t) { return from == 3 ? 120.0 : 234.0; }));
  CHECK(carried(graph, "gpu3", "nvswitch0") == Quantity{20, Origin::kMeasured});
  CHECK(carried(graph, "nvswitch0", "gpu3") == Quantity{39, Origin::kMeasured});
  CHECK(carried(graph, "gpu2", "nvswitch5") == Quantity{39, Origin::kMeasured});
  CHECK(said.find("blame") == std::string::npos);
}

TEST_CASE("a pair alone behind a switch has no link to blame") {
  Graph graph = machine("dgx-a100");
  const std::string said =
      write_rates(graph, rates_of(graph, 22, [](std::size_t from, std::size_t to) {
                    return (from == 3 && to == 5) || (from == 5 && to == 3) ? 100.0 : 240.0;
                  }));
  CHECK(carried(graph, "gpu3", "nvswitch0") == Quantity{40, Origin::kMeasured});
  CHECK(carried(graph, "nvswitch0", "gpu5") == Quantity{40, Origin::kMeasured});
  has(said,
      "gpu3 -> gpu5 100.0 GB/s, of 240.0 by its links: no single one is to blame; so are 1 "
      "more\n");
}

/// GPUs 0-3 of a pcie-8 hang on one socket, two on each switch.
double pcie_rate(std::size_t from, std::size_t to, double switches, double sockets) {
  if (from / 2 == to / 2) return 23;
  return from / 4 == to / 4 ? switches : sockets;
}

TEST_CASE("the link that only slow pairs have is between sockets") {
  Graph graph = machine("pcie-8");
  const std::string said =
      write_rates(graph, rates_of(graph, 23, [](std::size_t from, std::size_t to) {
                    return pcie_rate(from, to, 23, from < to ? 9 : 11);
                  }));
  CHECK(carried(graph, "numa0", "numa1") == Quantity{9, Origin::kMeasured});
  CHECK(carried(graph, "numa1", "numa0") == Quantity{11, Origin::kMeasured});
  for (const Link& link : graph.links) {
    if (link.kind == LinkKind::kInternal) CHECK(link.forward == topology::kInside);
    if (link.kind == LinkKind::kPcie) CHECK(link.forward.value >= 23);
  }
  CHECK(said.find("blame") == std::string::npos);
}

TEST_CASE("a link that is wider than any copy keeps its figure") {
  Graph graph = machine("pcie-8");
  const Quantity wide{40, Origin::kTable};
  for (Link& link : graph.links) {
    if (link.kind == LinkKind::kSocket) link.forward = link.backward = wide;
  }
  write_rates(graph, rates_of(graph, 23, [](std::size_t, std::size_t) { return 23; }));
  CHECK(carried(graph, "numa0", "numa1") == wide);
}

TEST_CASE("a link of a GPU that is slow one way is narrowed that way") {
  Graph graph = machine("pcie-8");
  GpuRates rates = rates_of(graph, 23, [](std::size_t from, std::size_t to) {
    return from == 5 ? 3 : pcie_rate(from, to, 23, 21);
  });
  rates.gpus[5].out = 3;
  const std::string said = write_rates(graph, rates);
  CHECK(carried(graph, "gpu5", "pci0000:13:00.0") == Quantity{3, Origin::kMeasured});
  CHECK(carried(graph, "pci0000:13:00.0", "gpu5") == Quantity{23, Origin::kMeasured});
  CHECK(carried(graph, "pci0000:10:00.0", "pci0000:0f:00.0") == Quantity{23, Origin::kMeasured});
  CHECK(said.find("blame") == std::string::npos);
}

TEST_CASE("what two GPUs share above their switch is to blame, and nothing inside of boxes") {
  Graph graph = machine("pcie-8");
  const auto shares = [](std::size_t gpu) { return gpu < 2; };
  GpuRates rates = rates_of(graph, 23, [&](std::size_t from, std::size_t to) {
    return shares(from) == shares(to) ? pcie_rate(from, to, 23, 21) : 5;
  });
  for (const std::size_t gpu : {0, 1}) rates.gpus[gpu].in = rates.gpus[gpu].out = 5;
  write_rates(graph, rates);
  CHECK(carried(graph, "pci0000:01:00.0", "pci0000:02:00.0") == Quantity{5, Origin::kMeasured});
  CHECK(carried(graph, "numa0", "pci0000:01:00.0") == topology::kInside);
  CHECK(carried(graph, "pci0000:03:00.0", "gpu0") == Quantity{23, Origin::kMeasured});
}

TEST_CASE("of several links that may be to blame those at the GPU count") {
  Graph graph = machine("pcie-8");
  GpuRates rates = rates_of(graph, 23, [](std::size_t from, std::size_t to) {
    return from == 5 || to == 5 ? 3 : pcie_rate(from, to, 23, 21);
  });
  rates.gpus[5].in = rates.gpus[5].out = 3;
  rates.gpus[4].bus = "";  // So nothing else is known of their switch.
  write_rates(graph, rates);
  CHECK(carried(graph, "gpu5", "pci0000:13:00.0") == Quantity{3, Origin::kMeasured});
  CHECK(carried(graph, "pci0000:0f:00.0", "pci0000:10:00.0").origin == Origin::kTable);
}

TEST_CASE("a CPU that passes copies slowly is no link") {
  Graph graph = machine("pcie-8");
  const std::string said =
      write_rates(graph, rates_of(graph, 23, [](std::size_t from, std::size_t to) {
                    return pcie_rate(from, to, 10, 21);
                  }));
  CHECK(carried(graph, "pci0000:03:00.0", "gpu0") == Quantity{23, Origin::kMeasured});
  has(said,
      "gpu0 -> gpu2 10.0 GB/s, of 23.0 by its links: no single one is to blame; so are 15 "
      "more\n");
}

TEST_CASE("noise does not make links differ, and a difference is no noise") {
  Graph graph = machine("dgx-a100");
  write_rates(graph, rates_of(graph, 22, [](std::size_t from, std::size_t) {
                return from == 7 ? 220.0 : 236.0 + static_cast<double>(from) / 2;
              }));
  const Quantity first = carried(graph, "gpu0", "nvswitch0");
  CHECK(first.origin == Origin::kMeasured);
  for (const char* gpu : {"gpu1", "gpu3", "gpu6"}) CHECK(carried(graph, gpu, "nvswitch0") == first);
  CHECK(carried(graph, "gpu7", "nvswitch0").value == Approx(36.67));
}

TEST_CASE("copies by the memory of the host say nothing of links") {
  Graph graph = machine("pcie-8");
  GpuRates rates = rates_of(graph, 23, [](std::size_t, std::size_t) { return 5; });
  for (GpuRates::Pair& pair : rates.pairs) pair.staged = true;
  rates.gpus[2] = {rates.gpus[2].bus, 0, 0, 0, "its memory is full"};
  rates.gpus[6].bus = "0000:ff:00.0";
  const std::string said = write_rates(graph, rates);
  CHECK(carried(graph, "numa0", "numa1").origin == Origin::kTable);
  CHECK(carried(graph, "pci0000:03:00.0", "gpu0") == Quantity{23, Origin::kMeasured});
  CHECK(carried(graph, "pci0000:0b:00.0", "gpu2").origin == Origin::kTable);
  has(said, "5.00*");
  has(said, "gpu2       not measured: its memory is full\n");
  has(said, "0000:ff:00.0 memory 3000.0, from the host 23.0, to it 23.0 GB/s; not in the graph\n");
}

TEST_CASE("links of which nobody knew the rate get one") {
  Graph graph = machine("pcie-8");
  for (Link& link : graph.links) {
    if (link.kind != LinkKind::kInternal) link.forward = link.backward = {};
  }
  write_rates(graph, rates_of(graph, 23, [](std::size_t from, std::size_t to) {
                return pcie_rate(from, to, 23, 9);
              }));
  CHECK(carried(graph, "pci0000:03:00.0", "gpu0") == Quantity{23, Origin::kMeasured});
  CHECK(carried(graph, "numa0", "numa1") == Quantity{9, Origin::kMeasured});
}

}  // namespace
}  // namespace tutti::tools
