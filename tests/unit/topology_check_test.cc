// The doctor: each model is well; damaged in one place, it has exactly that finding.
#include <algorithm>
#include <functional>
#include <set>

#include "support/catch.h"
#include "support/topology_tree.h"
#include "topology/checks/check.h"
#include "topology/models/model.h"
#include "topology/probe/probe.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

Graph make(const std::string& spec) {
  auto made = model(spec);
  INFO(spec << (made ? "" : ": " + made.error().what));
  REQUIRE(made);
  return *std::move(made);
}

Node& node(Graph& graph, const std::string& name) {
  INFO(name);
  const NodeId found = graph.find(name);
  REQUIRE(found.exists());
  return graph[found];
}

// The link of a kind that ends in a node, and, if given, begins in another.
Link& link(Graph& graph, LinkKind kind, const std::string& end, const std::string& other = "") {
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
Pcie& pcie(Graph& graph, const std::string& device) {
  return *link(graph, LinkKind::kPcie, device).pcie;
}

std::multiset<std::string> codes(const Findings& findings, Severity least = Severity::kWarning) {
  std::multiset<std::string> found;
  for (const Finding& finding : findings) {
    INFO(finding.code << " " << finding.where << ": " << finding.what);
    if (finding.severity >= least) found.insert(finding.code);
  }
  return found;
}

// What the probe says of a host that is well.
void describe_hosts(Graph& graph) {
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

Graph well(const std::string& spec = "hgx-h100:2") {
  Graph graph = make(spec);
  describe_hosts(graph);
  return graph;
}

// The finding of that code; there has to be one.
Finding only(const Findings& findings, const std::string& code) {
  for (const Finding& finding : findings) {
    if (finding.code == code) return finding;
  }
  FAIL("no " + code);
  return {};
}

struct Damage {
  const char* code;
  const char* where;
  Severity severity;
  double loss;  // -1: not looked at.
  std::function<void(Graph&)> make;
};

constexpr auto kError = Severity::kError;
constexpr auto kWarning = Severity::kWarning;
constexpr auto kNote = Severity::kNote;

void drop_links(Graph& graph, const std::function<bool(const Link&)>& which) {
  graph.links.erase(std::remove_if(graph.links.begin(), graph.links.end(), which),
                    graph.links.end());
}

const std::vector<Damage>& pcie_damages() {
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
      {"pcie-below-siblings", "host0/gpu1", kWarning, 0.5,
       [](Graph& g) {
         pcie(g, "host0/gpu1") = {{16, 16}, {16, 16}};
       }},
  };
  return all;
}

const std::vector<Damage>& gpu_damages() {
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
      {"nic-on-other-numa", "host0/gpu0", kWarning, -1,
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
      {"fabric-not-ready", "host0/gpu2", kError, 1,
       [](Graph& g) { node(g, "host0/gpu2").facts["fabric_state"] = "1"; }},
      {"p2p-refused", "host0/gpu2", kWarning, 0,
       [](Graph& g) { node(g, "host0/gpu2").facts["no_p2p"] = "gpu1:chipset"; }},
  };
  return all;
}

const std::vector<Damage>& nic_damages() {
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

const std::vector<Damage>& host_damages() {
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

void check_damages(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    Graph graph = well();
    damage.make(graph);
    const Findings findings = check(graph);
    INFO(damage.code << " at " << damage.where);
    // Exactly that code; some damages concern several parts.
    std::set<std::string> found;
    for (const auto& code : codes(findings)) found.insert(code);
    REQUIRE(found == std::set<std::string>{damage.code});
    bool there = false;
    for (const Finding& finding : findings) {
      if (finding.where != damage.where || finding.code != damage.code) continue;
      there = true;
      CHECK(finding.severity == damage.severity);
      if (damage.loss >= 0) CHECK(finding.loss == Approx(damage.loss).margin(0.001));
      CHECK(!finding.what.empty());
      CHECK(!finding.evidence.empty());
      CHECK(!finding.remedy.empty());
      CHECK(finding.what.find('\n') == std::string::npos);
    }
    CHECK(there);
  }
}

}  // namespace

TEST_CASE("Every model is well, with one host and with two, and on every network") {
  for (const Model* each : models()) {
    for (const char* size : {":1", ":2", ":2/plane", ":2/fat-tree", ":2/rail", ":2/torus"}) {
      const Findings findings = check(make(std::string(each->name) + size));
      INFO(each->name << size);
      for (const Finding& finding : findings) {
        INFO(finding.code << " " << finding.where << ": " << finding.what << " "
                          << finding.evidence);
        CHECK(finding.severity == Severity::kNote);
      }
      CHECK(exit_code(findings) == 0);
    }
  }
  // Fat trees and dragonflies cut hosts where a switch is full.
  for (const char* spec :
       {"hgx-h100:70", "dgx2:9/dragonfly", "p5:5/fat-tree", "dgx-a100:40/rail"}) {
    INFO(spec);
    CHECK(codes(check(make(spec))).empty());
  }
}

TEST_CASE("A host that is well in all that a probe says has no finding at all") {
  CHECK(check(well()).empty());
}

TEST_CASE("Damaged in one place of PCI Express") { check_damages(pcie_damages()); }
TEST_CASE("Damaged in one place of GPUs and GPUDirect") { check_damages(gpu_damages()); }
TEST_CASE("Damaged in one NIC") { check_damages(nic_damages()); }
TEST_CASE("Damaged in one host") { check_damages(host_damages()); }

TEST_CASE("An NVSwitch that all miss shows against the chip") {
  Graph graph = well();
  drop_links(graph, [&](const Link& each) {
    return graph[each.b].name.find("nvswitch3") != std::string::npos;
  });
  const Findings findings = check(graph);
  CHECK(codes(findings).count("nvswitch-missing") == 16);
  REQUIRE(codes(findings).size() == 16);
  CHECK(findings[0].loss == Approx(5.0 / 18));
}

TEST_CASE("GPUs that all run slowly may be asleep: a note") {
  Graph graph = well();
  for (Link& each : graph.links) {
    if (each.pcie && graph[each.b].kind == NodeKind::kGpu) each.pcie->current = {2.5, 16};
  }
  const Findings findings = check(graph);
  CHECK(codes(findings, kNote) == [] {
    std::multiset<std::string> all;
    for (int i = 0; i < 16; ++i) all.insert("pcie-asleep");
    return all;
  }());
  CHECK(exit_code(findings) == 0);
}

TEST_CASE("A spare port of a NIC that is down is a note") {
  Graph graph = well();
  const std::string bus = node(graph, "host0/mlx5_4").bus;
  node(graph, "host0/mlx5_5").bus = bus.substr(0, bus.size() - 1) + "1";
  node(graph, "host0/mlx5_5").facts["state"] = "DOWN";
  const Findings findings = check(graph);
  CHECK(codes(findings).empty());
  CHECK(only(findings, "nic-down").severity == kNote);
}

TEST_CASE("An Ethernet port that is down is a note; a NIC that alone could be used is not") {
  Graph graph = well();
  node(graph, "host0/mlx5_4").facts.erase("guid");
  node(graph, "host0/mlx5_4").facts["state"] = "down";
  CHECK(only(check(graph), "nic-down").severity == kNote);
  for (Node& each : graph.nodes) {
    if (each.kind == NodeKind::kNic) each.facts["state"] = "DOWN";
  }
  CHECK(only(check(graph), "nic-down").severity == kWarning);
}

TEST_CASE("Half of the GPUs with a link less, and no switch: wired so. One: broken") {
  Graph graph = make("mi300x");
  const auto less = [&](const std::string& a, const std::string& b) {
    Link& each = link(graph, LinkKind::kXgmi, a, b);
    each.count = 2;
    each.forward.value *= 2;
    each.backward.value *= 2;
  };
  less("host0/gpu0", "host0/gpu1");
  less("host0/gpu2", "host0/gpu3");
  Findings findings = check(graph);
  CHECK(only(findings, "gpu-fewer-links").severity == kNote);
  CHECK(exit_code(findings) == 0);
  less("host0/gpu4", "host0/gpu5");
  findings = check(graph);
  CHECK(codes(findings) == std::multiset<std::string>{"gpu-fewer-links", "gpu-fewer-links"});
  CHECK(exit_code(findings) == 2);
}

TEST_CASE("A NIC on another's rail shows where two hosts have it otherwise") {
  Graph graph = well("hgx-h100:3");
  link(graph, LinkKind::kPort, "host2/mlx5_0").b = link(graph, LinkKind::kPort, "host0/mlx5_1").b;
  const Findings findings = check(graph);
  REQUIRE(codes(findings) == std::multiset<std::string>{"rail-mismatch"});
  CHECK(findings[0].where == "host2");
  CHECK(findings[0].evidence.find("host2/mlx5_0 is on rail1/leaf0") == 0);
}

TEST_CASE("Two damages are both found, the worse one first; known findings are ranked among them") {
  Graph graph = well();
  pcie(graph, "host0/gpu3").current.width = 8;
  node(graph, "host1/mlx5_4").facts["mtu"] = "1500";
  CheckOptions options;
  options.known.push_back({Severity::kWarning, "pci-hidden", "host0", "hidden", "", "", 0.3});
  options.known.push_back({Severity::kWarning, "nic-mtu", "host1/mlx5_4", "again", "", "", 0});
  const Findings findings = check(graph, options);
  REQUIRE(findings.size() == 3);
  CHECK(findings[0].code == "pcie-width");
  CHECK(findings[1].code == "pci-hidden");
  CHECK(findings[2].code == "nic-mtu");
  CHECK(findings[2].what != "again");
  CHECK(exit_code(findings) == 2);
  CHECK(exit_code({findings[1]}) == 1);
  CHECK(exit_code({}) == 0);
}

TEST_CASE("A machine does not differ from itself, whatever its names and addresses") {
  for (const Model* each : models()) {
    Graph graph = make(std::string(each->name) + ":2");
    INFO(each->name);
    Graph other = graph;
    for (Node& part : other.nodes) {
      part.name = "other/" + part.name;
      if (!part.bus.empty()) part.bus = "1" + part.bus.substr(1);
    }
    CHECK(differences(graph, other).empty());
  }
}

TEST_CASE("Differences are what was changed, ranked") {
  const Graph graph = well();
  const auto changed = [&](const std::function<void(Graph&)>& change) {
    Graph other = graph;
    change(other);
    return differences(graph, other);
  };
  const auto width = changed([](Graph& g) { pcie(g, "host0/gpu3").current.width = 8; });
  REQUIRE(codes(width, kNote) == std::multiset<std::string>{"differs-pcie"});
  CHECK(width[0].where == "host0/gpu3");
  CHECK(width[0].loss == 0.5);

  const auto both = changed([](Graph& g) {
    node(g, "host1/mlx5_4").facts["speed_mbps"] = "200000";
    link(g, LinkKind::kNvlink, "host0/gpu2", "host0/nvswitch0").count = 4;
  });
  REQUIRE(codes(both, kNote) == std::multiset<std::string>{"differs-links", "differs-speed"});
  CHECK(both[0].code == "differs-links");
  CHECK(both[1].where == "host1/mlx5_4");

  const auto place = changed([](Graph& g) {
    const NodeId numa = g.find("host0/numa1");
    link(g, LinkKind::kPcie, "host0/gpu0").a = numa;
  });
  CHECK(codes(place, kNote) == std::multiset<std::string>{"differs-numa", "differs-nearest"});

  const auto down = changed([](Graph& g) { node(g, "host0/mlx5_4").facts["state"] = "DOWN"; });
  REQUIRE(codes(down, kError) == std::multiset<std::string>{"differs-state"});
  const auto fact = changed([](Graph& g) { node(g, "host0").facts["kernel"] = "5.4.0"; });
  REQUIRE(codes(fact, kNote) == std::multiset<std::string>{"differs-fact"});
  CHECK(exit_code(fact) == 0);

  const auto fewer = differences(make("hgx-h100:2"), make("hgx-h100:1"));
  REQUIRE(codes(fewer, kError) == std::multiset<std::string>{"differs-count"});
  CHECK(fewer[0].loss == 0.5);
  CHECK(codes(differences(make("hgx-h100"), make("dgx-a100"))).count("differs-count") > 0);
}

namespace {
Imported probed(const std::string& name) {
  MemoryTree tree;
  load(tree, name);
  return probe_tree(tree);
}
}  // namespace

TEST_CASE("The probe's made-up machines are judged without failing, the same each time") {
  for (const char* name : {"sysfs-hgx", "sysfs-mi300x", "sysfs-vm"}) {
    INFO(name);
    const Imported imported = probed(name);
    const Findings findings = check(imported.graph, {imported.findings});
    CHECK(findings.size() >= imported.findings.size());
    CHECK(findings == check(imported.graph, {imported.findings}));
    CHECK(differences(imported.graph, imported.graph).empty());
  }
}
