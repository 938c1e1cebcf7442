// File: support/topology/topology_damages.h: machines that are well, and damages of one place each:
// at least one for each code that a check can give (topology/checks/checks.def).
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "support/catch.h"
#include "topology/graph/finding.h"
#include "topology/graph/graph.h"
#include "topology/models/model.h"

namespace tutti::topology::test {

inline Graph make(const std::string& spec) {
  auto made = model(spec);
  INFO(spec << (made ? "" : ": " + made.error().what));
  REQUIRE(made);
  return *std::move(made);
}

inline Node& node(Graph& graph, const std::string& name) {
  INFO(name);
  const NodeId found = graph.find(name);
  REQUIRE(found.exists());
  return graph[found];
}

// The link of a kind that ends in a node, and, if given, begins in another.
inline Link& link(Graph& graph, LinkKind kind, const std::string& end,
                  const std::string& other = "") {
  INFO(end << " " << other);
  const NodeId one = graph.find(end), two = graph.find(other);
  for (Link& each : graph.links) {
    if (each.kind != kind) continue;
    const bool forward = each.b == one && (other.empty() || each.a == two);
    const bool backward = each.a == one && (other.empty() || each.b == two);
    if (forward || backward) return each;
  }
  FAIL("no such link");
  return graph.links[0];
}
inline Pcie& pcie(Graph& graph, const std::string& device) {
  return *link(graph, LinkKind::kPcie, device).pcie;
}

// What the probe says of a host that is well.
inline void describe_hosts(Graph& graph) {
  int guid = 0;
  for (Node& each : graph.nodes) {
    if (each.kind == NodeKind::kHost) {
      each.facts["kernel"] = "6.8.0";
      each.facts["peermem"] = "loaded";
      each.facts["cpus_allowed"] = "0-63";
      each.facts["shm_bytes"] = "68719476736";
      each.facts["memlock_bytes"] = "unlimited";
      each.facts["iommu"] = "iommu=pt";
      each.facts["iommu_groups"] = "50";
    }
    if (each.kind == NodeKind::kNuma) each.facts["cpus"] = each.index == 0 ? "0-31" : "32-63";
    if (each.kind == NodeKind::kGpu) each.facts["iommu_type"] = "identity";
    if (each.kind == NodeKind::kNic) {
      each.facts["guid"] = std::to_string(++guid);
      each.facts["state"] = "ACTIVE";
      each.facts["rate"] = "400 Gb/sec (4X NDR)";
      each.facts["link_layer"] = "Ethernet";
      each.facts["mtu"] = "9000";
      each.facts["gid0"] = "fe80:0000:0000:0000:0000:0000:0000:0001 IB/RoCE v1";
      each.facts["gid3"] = "0000:0000:0000:0000:0000:ffff:0a00:0001 RoCE v2";
    }
  }
}

inline Graph well(const std::string& spec = "hgx-h100:2") {
  Graph graph = make(spec);
  describe_hosts(graph);
  return graph;
}

struct Damage {
  const char* code;
  const char* where;
  Severity severity;
  double loss;  // -1: not looked at.
  std::function<void(Graph&)> make;
};

inline constexpr auto kError = Severity::kError;
inline constexpr auto kWarning = Severity::kWarning;
inline constexpr auto kNote = Severity::kNote;

inline void drop_links(Graph& graph, const std::function<bool(const Link&)>& which) {
  graph.links.erase(std::remove_if(graph.links.begin(), graph.links.end(), which),
                    graph.links.end());
}

// The same rate for the links of all parts of a kind, as a virtual machine may be told.
inline void set_rates(Graph& graph, NodeKind kind, PcieRate rate) {
  for (Link& each : graph.links) {
    if (!each.pcie || graph[each.b].kind != kind) continue;
    each.pcie = Pcie{rate, rate};
    each.forward = each.backward = {pcie_bandwidth(rate), each.forward.origin};
  }
}

inline const std::vector<Damage>& pcie_damages() {
  static const std::vector<Damage> all{
      {"pcie-width", "host0/gpu3", kError, 0.5,
       [](Graph& g) { pcie(g, "host0/gpu3").current.width = 8; }},
      {"pcie-width", "host1/mlx5_2", kError, 0.75,
       [](Graph& g) {
         pcie(g, "host1/mlx5_2").current = {16, 4};
       }},
      {"pcie-speed", "host0/gpu3", kWarning, 0.5,
       [](Graph& g) { pcie(g, "host0/gpu3").current.gigatransfers = 16; }},
      {"pcie-speed", "host0/mlx5_1", kWarning, 0.5,
       [](Graph& g) {
         for (Link& each : g.links) {
           const bool nic = g[each.b].kind == NodeKind::kNic;
           if (each.pcie && nic) each.pcie->current = {0, 0};  // Nobody to compare with.
         }
         pcie(g, "host0/mlx5_1").current = {16, 16};
       }},
      {"pcie-asleep", "host0-host1/gpu0-gpu7", kNote, -1,
       [](Graph& g) {
         for (Link& each : g.links) {
           if (each.pcie && g[each.b].kind == NodeKind::kGpu) each.pcie->current = {2.5, 16};
         }
       }},
      {"pcie-measured", "host0/gpu1", kWarning, 0.5,
       [](Graph& g) {
         Link& each = link(g, LinkKind::kPcie, "host0/gpu1");
         each.backward = {24, Origin::kMeasured};
       }},
      {"pcie-slot", "host0/gpu1", kWarning, 0.5,
       [](Graph& g) {
         node(g, "host0/gpu1").facts["pcie_device_width"] = "16";
         pcie(g, "host0/gpu1") = {{32, 8}, {32, 8}};
       }},
      {"pcie-uplink", "host0/pci0000:02:00.0", kWarning, 0.996,
       [](Graph& g) {
         pcie(g, "host0/pci0000:02:00.0") = {{2.5, 1}, {2.5, 1}};
       }},
      {"pcie-uplink", "host1/pci0000:02:00.0", kWarning, 0.875,
       [](Graph& g) {
         pcie(g, "host1/pci0000:02:00.0") = {{5, 16}, {5, 16}};
       }},
      {"pcie-generation", "host0-host1/gpu0-gpu7", kWarning, 0.922,
       [](Graph& g) {
         set_rates(g, NodeKind::kGpu, {2.5, 16});
       }},
      {"pcie-below-siblings", "host0/gpu1", kWarning, 0.5,
       [](Graph& g) {
         pcie(g, "host0/gpu1") = {{16, 16}, {16, 16}};
       }},
  };
  return all;
}

inline const std::vector<Damage>& gpu_damages() {
  static const std::vector<Damage> all{
      {"gpudirect-acs", "host0/pci0000:00:03.0", kWarning, -1,
       [](Graph& g) {
         // The port between the switch and the GPU.
         Link& each = link(g, LinkKind::kPcie, "host0/gpu0");
         Node& port = g[each.a];
         port.name = "host0/pci0000:00:03.0";
         port.facts["acs"] = "on";
       }},
      {"gpudirect-iommu", "host1", kWarning, -1,
       [](Graph& g) { node(g, "host1/gpu0").facts["iommu_type"] = "DMA-FQ"; }},
      {"gpudirect-iommu", "host0", kWarning, -1,
       [](Graph& g) {
         for (Node& each : g.nodes) each.facts.erase("iommu_type");
         node(g, "host0").facts["iommu"] = "intel_iommu=on";
       }},
      {"gpudirect-driver", "host0", kWarning, -1,
       [](Graph& g) {
         node(g, "host0").facts.erase("peermem");
         node(g, "host0").facts["kernel"] = "5.4.0-42";
       }},
      {"gpudirect-far", "host0/gpu0", kWarning, -1,
       [](Graph& g) {
         const NodeId numa = g.find("host0/numa0");
         link(g, LinkKind::kPcie, "host0/gpu0").a = numa;
       }},
      {"nic-on-other-numa", "host0/gpu0-gpu3", kWarning, -1,
       [](Graph& g) {
         // All NICs of the first NUMA node go to the second.
         const NodeId numa = g.find("host0/numa1");
         for (const char* nic : {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}) {
           link(g, LinkKind::kPcie, std::string("host0/") + nic).a = numa;
         }
       }},
      {"gpu-fewer-links", "host0/gpu2", kError, 5.0 / 18,
       [](Graph& g) {
         const NodeId gpu = g.find("host0/gpu2"), sw = g.find("host0/nvswitch0");
         drop_links(g, [&](const Link& each) { return each.a == gpu && each.b == sw; });
       }},
      {"gpu-without-links", "host1/gpu2", kError, 1,
       [](Graph& g) {
         const NodeId gpu = g.find("host1/gpu2");
         drop_links(
             g, [&](const Link& each) { return each.a == gpu && each.kind == LinkKind::kNvlink; });
       }},
      {"nvlink-inactive", "host0/gpu2", kError, 1.0 / 18,
       [](Graph& g) {
         node(g, "host0/gpu2").facts["nvlinks"] = "17 of 18 active";
         link(g, LinkKind::kNvlink, "host0/gpu2", "host0/nvswitch0").count = 4;
       }},
      {"unequal-reverse", "host0/gpu2", kWarning, 0.5,
       [](Graph& g) {
         link(g, LinkKind::kNvlink, "host0/gpu2", "host0/nvswitch0").backward.value /= 2;
       }},
  };
  return all;
}

inline const std::vector<Damage>& fabric_damages() {
  static const std::vector<Damage> all{
      {"fabric-not-ready", "host0/gpu2", kError, 1,
       [](Graph& g) { node(g, "host0/gpu2").facts["fabric_state"] = "1"; }},
      {"fabric-no-handles", "host0/gpu2", kWarning, 0,
       [](Graph& g) {
         node(g, "host0/gpu2").facts["fabric_uuid"] = "00000000-0000-0000-0000-000000000001";
         node(g, "host0/gpu2").facts["fabric_handles"] = "no";
       }},
      {"nvswitch-missing", "host0-host1/gpu0-gpu7", kError, 5.0 / 18,
       [](Graph& g) {
         drop_links(g, [&](const Link& each) {
           return g[each.b].name.find("nvswitch3") != std::string::npos;
         });
       }},
      {"nvlink-hidden", "host0-host1", kWarning, 0,
       [](Graph& g) {
         drop_links(g, [](const Link& each) { return each.kind == LinkKind::kNvlink; });
       }},
      {"p2p-refused", "host0/gpu2", kWarning, 0,
       [](Graph& g) { node(g, "host0/gpu2").facts["no_p2p"] = "gpu1:chipset"; }},
  };
  return all;
}

inline const std::vector<Damage>& nic_damages() {
  static const std::vector<Damage> all{
      {"nic-down", "host0/mlx5_4", kError, 1,
       [](Graph& g) { node(g, "host0/mlx5_4").facts["state"] = "DOWN"; }},
      {"nic-slow", "host0/mlx5_4", kWarning, 0.5,
       [](Graph& g) {
         node(g, "host0/mlx5_4").facts["speed_mbps"] = "200000";
         node(g, "host0/mlx5_4").facts["rate"] = "200 Gb/sec (4X HDR)";
       }},
      {"nic-width", "host0/mlx5_4", kError, 0.75,
       [](Graph& g) {
         node(g, "host0/mlx5_4").facts["speed_mbps"] = "100000";
         node(g, "host0/mlx5_4").facts["rate"] = "100 Gb/sec (1X NDR)";
       }},
      {"nic-speed-implausible", "host0/mlx5_4", kWarning, 0,
       [](Graph& g) { node(g, "host0/mlx5_4").facts["speed_mbps"] = "400000000"; }},
      {"nic-mtu", "host0/mlx5_4", kWarning, 0,
       [](Graph& g) { node(g, "host0/mlx5_4").facts["mtu"] = "1500"; }},
      {"nic-firmware", "host0/mlx5_4", kWarning, 0,
       [](Graph& g) {
         for (Node& each : g.nodes) {
           if (each.kind == NodeKind::kNic) each.facts["firmware"] = "28.39.1002";
         }
         node(g, "host0/mlx5_4").facts["firmware"] = "28.35.2000";
       }},
      {"nic-pcie-narrow", "host0/mlx5_4", kWarning, 0.52,
       [](Graph& g) {
         // Two functions of one device behind one link.
         const std::string bus = node(g, "host0/mlx5_4").bus;
         node(g, "host0/mlx5_5").bus = bus.substr(0, bus.size() - 1) + "1";
       }},
      {"nic-no-address", "host0/mlx5_4", kWarning, 1,
       [](Graph& g) { node(g, "host0/mlx5_4").facts.erase("gid3"); }},
  };
  return all;
}

inline const std::vector<Damage>& host_damages() {
  static const std::vector<Damage> all{
      {"numa-unknown", "host0/mlx5_4", kWarning, 0,
       [](Graph& g) {
         const NodeId nic = g.find("host0/mlx5_4");
         drop_links(
             g, [&](const Link& each) { return each.b == nic && each.kind == LinkKind::kPcie; });
       }},
      {"cpuset-excludes-numa", "host1/numa1", kWarning, 0,
       [](Graph& g) { node(g, "host1").facts["cpus_allowed"] = "0-7,16"; }},
      {"shm-small", "host1", kWarning, 0,
       [](Graph& g) { node(g, "host1").facts["shm_bytes"] = "67108864"; }},
      {"memlock-limited", "host0", kWarning, 0,
       [](Graph& g) { node(g, "host0").facts["memlock_bytes"] = "8388608"; }},
      {"rail-mismatch", "host1", kWarning, 0.25,
       [](Graph& g) {
         Link& first = link(g, LinkKind::kPort, "host1/mlx5_0");
         std::swap(first.b, link(g, LinkKind::kPort, "host1/mlx5_1").b);
       }},
      {"nic-order", "host1", kWarning, 0,
       [](Graph& g) { std::swap(node(g, "host1/mlx5_0").bus, node(g, "host1/mlx5_7").bus); }},
      {"hosts-differ", "host1", kWarning, -1,
       [](Graph& g) {
         for (Node& each : g.nodes) {
           if (each.name == "host1/gpu7") each.facts["model"] = "H100-SXM5-94GB";
         }
       }},
  };
  return all;
}

inline std::vector<Damage> all_damages() {
  std::vector<Damage> all;
  for (const auto* list :
       {&pcie_damages(), &gpu_damages(), &fabric_damages(), &nic_damages(), &host_damages()})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

}  // namespace tutti::topology::test
