// The doctor: each model is well; damaged in one place, it has exactly that finding. Each code that
// a check can give has such a damage here.
#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "support/catch.h"
#include "support/topology/topology_damages.h"
#include "support/topology/topology_tree.h"
#include "topology/checks/check.h"
#include "topology/checks/parts.h"
#include "topology/models/model.h"
#include "topology/probe/probe.h"

using namespace tutti;
using namespace tutti::topology;
using namespace tutti::topology::test;

namespace {

std::multiset<std::string> codes(const Findings& findings, Severity least = Severity::kWarning) {
  std::multiset<std::string> found;
  for (const Finding& finding : findings) {
    INFO(finding.code << " " << finding.where << ": " << finding.what);
    if (finding.severity >= least) found.insert(finding.code);
  }
  return found;
}

// The finding of that code; there has to be one.
Finding only(const Findings& findings, const std::string& code) {
  for (const Finding& finding : findings) {
    if (finding.code == code) return finding;
  }
  FAIL("no " + code);
  return {};
}

void check_damages(const std::vector<Damage>& damages) {
  for (const Damage& damage : damages) {
    Graph graph = well();
    damage.make(graph);
    const Findings findings = check(graph);
    INFO(damage.code << " at " << damage.where);
    // Exactly that code; some damages concern several parts.
    std::set<std::string> found;
    for (const auto& code : codes(findings, damage.severity)) found.insert(code);
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
TEST_CASE("Damaged in one place of NVLinks and the fabric") { check_damages(fabric_damages()); }
TEST_CASE("Damaged in one NIC") { check_damages(nic_damages()); }
TEST_CASE("Damaged in one host") { check_damages(host_damages()); }

TEST_CASE("Each code of a check has a damaged machine, and no check has others") {
  std::set<std::string> damaged, listed;
  for (const Damage& damage : all_damages()) damaged.insert(damage.code);
  const auto look_at = [&](const char* check, std::initializer_list<const char*> own) {
    INFO(check << " of checks.def; the damages are in topology_damages.h");
    CHECK(own.size() > 0);
    for (const char* code : own) {
      INFO(code);
      CHECK(damaged.count(code) == 1);
      CHECK(listed.insert(code).second);
    }
  };
#define TUTTI_CHECK_OF(name, ...) look_at(#name, {__VA_ARGS__});
#include "topology/checks/checks.def"
#undef TUTTI_CHECK_OF
  CHECK(listed == damaged);
}

TEST_CASE("GPUs that all run slowly may be asleep: a note") {
  Graph graph = well();
  for (Link& each : graph.links) {
    if (each.pcie && graph[each.b].kind == NodeKind::kGpu) each.pcie->current = {2.5, 16};
  }
  const Findings findings = check(graph);
  CHECK(codes(findings, kNote) == std::multiset<std::string>{"pcie-asleep"});
  CHECK(findings[0].where == "host0-host1/gpu0-gpu7");
  CHECK(exit_code(findings) == 0);
}

TEST_CASE("What all parts of a kind have wrong is one finding, however many there are") {
  const PcieRate slow{2.5, 1};
  for (const Model* each : models()) {
    for (const char* size : {":1", ":3"}) {
      Graph graph = make(std::string(each->name) + size);
      describe_hosts(graph);
      for (Node& part : graph.nodes) {
        if (part.kind == NodeKind::kNic) part.facts["state"] = "DOWN";
      }
      for (Node& part : graph.nodes) {
        if (part.kind == NodeKind::kPciePort) part.facts["acs"] = "on";
      }
      set_rates(graph, NodeKind::kGpu, slow);
      set_rates(graph, NodeKind::kPcieSwitch, slow);
      const Findings findings = check(graph);
      std::set<std::tuple<Severity, std::string, std::string, std::string>> causes;
      for (const Finding& finding : findings) {
        INFO(each->name << size << " " << finding.code << " " << finding.where);
        CHECK(
            causes.insert({finding.severity, finding.code, finding.what, finding.evidence}).second);
      }
      CHECK(findings.size() <= 12);
      const Graph whole = well(std::string(each->name) + size);
      for (const Finding& finding : differences(whole, graph)) {
        INFO(each->name << size << " " << finding.code << " " << finding.where);
        CHECK(finding.where.find(", ") == std::string::npos);
      }
    }
  }
}

TEST_CASE("Places in short keep every name, up to a dozen") {
  CHECK(place_of({"host0/gpu0"}) == "host0/gpu0");
  CHECK(place_of({"host0/gpu2", "host0/gpu0", "host0/gpu1"}) == "host0/gpu0-gpu2");
  CHECK(place_of({"host0/gpu9", "host0/gpu10", "host0/gpu11"}) == "host0/gpu9-gpu11");
  CHECK(place_of({"host0/gpu0", "host0/gpu1", "host0/mlx5_3"}) == "host0/gpu0-gpu1, mlx5_3");
  CHECK(place_of({"host0/gpu0", "host1/gpu0", "host3/gpu0"}) == "host0-host1/gpu0; host3/gpu0");
  CHECK(place_of({"host1/gpu0", "host0/gpu0", "host0/gpu4"}) == "host1/gpu0; host0/gpu0, gpu4");
  CHECK(place_of({"host2", "host0", "host1"}) == "host0-host2");
  CHECK(place_of({"host0/p07", "host0/p08", "host0/p09"}) == "host0/p07, p08, p09");
  std::vector<std::string> many;
  for (int i = 0; i < 30; ++i) many.push_back("host0/gpu" + std::to_string(2 * i));
  CHECK(place_of(many).ends_with(" and 18 more"));
}

TEST_CASE("Interfaces that are no device count for nothing") {
  Graph graph = well("pcie-8:2");
  const Findings before = check(graph);
  for (int i = 0; i < 12; ++i) {
    Node veth{NodeKind::kNic, "host0/veth" + std::to_string(i), graph.find("host0"), -1};
    veth.facts["guid"] = std::to_string(i);  // As NCCL counts its sockets.
    const NodeId added = graph.add(veth);
    // NCCL's files have them below a processor, other sources nowhere.
    if (i % 2 == 0) graph.join(LinkKind::kInternal, graph.find("host0/numa0"), added, kInside);
  }
  CHECK(check(graph) == before);
}

TEST_CASE("Several NICs that are slower alike are a network of their own, one is slow") {
  Graph graph = well();
  const auto slow = [&](const std::string& nic) {
    node(graph, nic).facts["speed_mbps"] = "100000";
    node(graph, nic).facts["rate"] = "100 Gb/sec (4X EDR)";
  };
  slow("host0/mlx5_6");
  CHECK(only(check(graph), "nic-slow").severity == kWarning);
  slow("host0/mlx5_7");
  const Finding note = only(check(graph), "nic-slow");
  CHECK(note.severity == kNote);
  CHECK(note.where == "host0/mlx5_6-mlx5_7");
  CHECK(note.loss == 0);
}

TEST_CASE("Refusals of all other GPUs are one finding, of some each its own") {
  Graph graph = well("pcie-8");
  const auto refuse = [&](int gpu, int least) {
    std::string list;
    for (int i = least; i < 8; ++i) {
      if (i != gpu) list += (list.empty() ? "gpu" : " gpu") + std::to_string(i) + ":chipset";
    }
    node(graph, "host0/gpu" + std::to_string(gpu)).facts["no_p2p"] = list;
  };
  for (int i = 0; i < 8; ++i) refuse(i, 0);
  const Finding one = only(check(graph), "p2p-refused");
  CHECK(one.where == "host0/gpu0-gpu7");
  CHECK(one.evidence == "no_p2p: all 7 others, chipset (NVML)");
  refuse(3, 5);
  CHECK(codes(check(graph), kNote).count("p2p-refused") == 2);
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
  CHECK(codes(findings) == std::multiset<std::string>{"gpu-fewer-links"});
  CHECK(findings[0].where == "host0/gpu6-gpu7");
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
    CHECK(codes(findings, kNote).size() == findings.size());
    CHECK(findings == check(imported.graph, {imported.findings}));
    CHECK(differences(imported.graph, imported.graph).empty());
  }
}
