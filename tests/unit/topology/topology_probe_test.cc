// The probe on machines made up of files, on this machine, and on its own captures; NVML.
#include <set>

#include "support/catch.h"
#include "support/topology/topology_tree.h"
#include "topology/capture/archive.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/file_tree.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/sysfs.h"

using namespace tutti;
using namespace tutti::topology;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kTrees{"sysfs-hgx", "sysfs-mi300x", "sysfs-vm"};

const Link* find_link(const Graph& graph, std::string_view a, std::string_view b) {
  for (const Link& link : graph.links) {
    if (graph[link.a].name == a && graph[link.b].name == b) return &link;
  }
  return nullptr;
}

const Node& node(const Graph& graph, std::string_view name) {
  INFO(name);
  const NodeId found = graph.find(name);
  REQUIRE(found.exists());
  return graph[found];
}

std::multiset<std::string> codes(const Findings& findings) {
  std::multiset<std::string> found;
  for (const Finding& finding : findings) found.insert(finding.code);
  return found;
}

// What must hold of any probe's graph, however mad its files are.
void check_sound(const Imported& imported) {
  const Graph& graph = imported.graph;
  std::set<std::string> names;
  for (const Node& each : graph.nodes) {
    INFO(each.name);
    REQUIRE(names.insert(each.name).second);
    REQUIRE(each.name.find_first_of(" \t\n") == std::string::npos);
    for (const auto& [key, value] : each.facts) {
      REQUIRE(key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string::npos);
      REQUIRE(!value.empty());
      for (const char c : value) REQUIRE((c >= ' ' && c <= '~'));
    }
  }
  for (const Link& link : graph.links) {
    REQUIRE(std::max(link.a, link.b).value < graph.nodes.size());
    REQUIRE(link.a != link.b);
    REQUIRE(link.forward.value >= 0);
    REQUIRE(link.forward.value < 1e5);
    REQUIRE((link.forward.known() || link.forward.value == 0));
    REQUIRE((link.pcie.has_value() == (link.kind == LinkKind::kPcie)));
  }
  REQUIRE(!graph.all(NodeKind::kNuma).empty());
  for (const Finding& finding : imported.findings) {
    REQUIRE(finding.what.find('\n') == std::string::npos);
    REQUIRE(!finding.code.empty());
  }
}

NvmlFacts two_gpus() {
  NvmlFacts facts;
  facts.driver = "550.54";
  facts.gpus.resize(2);
  facts.gpus[0].index = 0;
  facts.gpus[0].bus = "0000:98:00.0";  // Driver's order is not that of addresses here.
  facts.gpus[1].index = 1;
  facts.gpus[1].bus = "0000:19:00.0";
  for (int i = 0; i < 2; ++i) {
    NvmlGpu& gpu = facts.gpus[static_cast<std::size_t>(i)];
    gpu.sm = 90;
    gpu.name = "H100";
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.current = gpu.maximum = {32, 16};
    gpu.p2p = {0, 0};
    for (int link = 0; link < 18; ++link) {
      NvmlLink made;
      made.index = link;
      made.active = i == 0 || link < 17;  // One is down at the second GPU.
      made.remote = NvmlLink::Remote::kSwitch;
      made.bus = link < 9 ? "0000:a9:00.0" : "";  // The second switch is hidden.
      gpu.links.push_back(made);
    }
  }
  facts.gpus[0].p2p = {0, 3};
  return facts;
}

}  // namespace

TEST_CASE("A host with a PCI tree: bridges, rates, NUMA nodes, ports") {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  const Graph& graph = imported.graph;
  const auto& host = node(graph, "host0").facts;
  CHECK(host.at("hostname") == "gpu-7");
  CHECK(host.at("iommu") == "intel_iommu=on iommu=pt");
  CHECK(host.at("shm_bytes") == "1073741824");
  CHECK(host.at("memlock_bytes") == "unlimited");
  CHECK(host.at("peermem") == "loaded");
  CHECK(find_link(graph, "host0/numa0", "host0/numa1")->forward == Quantity{22, Origin::kTable});
  CHECK(graph.all(NodeKind::kPackage).empty());

  CHECK(node(graph, "host0/pci0000:16:01.0").kind == NodeKind::kPciePort);
  CHECK(node(graph, "host0/pci0000:17:00.0").kind == NodeKind::kPcieSwitch);
  CHECK(node(graph, "host0/pci0000:18:00.0").kind == NodeKind::kPciePort);
  const auto kind = [&](const char* a, const char* b) {
    const Link* const link = find_link(graph, a, b);
    INFO(a << " " << b);
    REQUIRE(link != nullptr);
    return link->kind;
  };
  CHECK(kind("host0/numa0", "host0/pci0000:16:01.0") == LinkKind::kInternal);
  CHECK(kind("host0/pci0000:16:01.0", "host0/pci0000:17:00.0") == LinkKind::kPcie);
  CHECK(kind("host0/pci0000:17:00.0", "host0/pci0000:18:00.0") == LinkKind::kInternal);
  const Link* const gpu = find_link(graph, "host0/pci0000:18:00.0", "host0/gpu0");
  REQUIRE(gpu != nullptr);
  CHECK(gpu->pcie == Pcie{{2.5, 16}, {32, 16}});  // Asleep: what it can do counts.
  CHECK(gpu->forward == Quantity{48, Origin::kReportedMaximum});
  CHECK(node(graph, "host0/gpu0").facts.at("iommu_group") == "5");
  CHECK(find_link(graph, "host0/pci0000:18:01.0", "host0/mlx5_0")->pcie == Pcie{{16, 8}, {32, 16}});
  // The device says nothing, the port above does.
  CHECK(find_link(graph, "host0/pci0000:97:01.0", "host0/gpu1")->pcie == Pcie{{32, 16}, {32, 16}});
  CHECK(kind("host0/numa1", "host0/pci0000:97:01.0") == LinkKind::kInternal);

  const auto& nic = node(graph, "host0/mlx5_0").facts;
  CHECK(nic.at("speed_mbps") == "400000");
  CHECK(nic.at("state") == "ACTIVE");
  CHECK(nic.at("netdev") == "ibp26s0");
  CHECK(nic.at("guid") == "a088:c203:0012:3456");
  CHECK(nic.at("firmware") == "28.39.1002");
  CHECK(nic.at("gid1") == "0000:0000:0000:0000:0000:ffff:0a00:0001 RoCE v2");
  CHECK(nic.count("gid2") == 0);
  CHECK(find_link(graph, "host0/mlx5_0", "network")->forward ==
        Quantity{50, Origin::kReportedCurrent});
  CHECK(kind("host0/pci0000:a7:01.0", "host0/card0000:a8:00.0") == LinkKind::kPcie);
  CHECK(kind("host0/card0000:a8:00.0", "host0/mlx4_0:1") == LinkKind::kInternal);
  CHECK(node(graph, "host0/mlx4_0:2").facts.at("netdev") == "enp168s0d1");
  CHECK(node(graph, "host0/mlx4_0:2").facts.at("state") == "DOWN");
  CHECK(node(graph, "host0/nvswitch0").bus == "0000:a9:00.0");
  CHECK(graph.all(NodeKind::kNic).size() == 3);  // Without the virtual function and lo.
  CHECK(graph.all(NodeKind::kGpu).size() == 2);  // Without the VGA controller.
  CHECK(codes(imported.findings) == std::multiset<std::string>{"nvlink-hidden"});
}

TEST_CASE("xGMI links and NUMA nodes that share a package") {
  MemoryTree tree;
  load(tree, "sysfs-mi300x");
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  const Graph& graph = imported.graph;
  CHECK(graph.all(NodeKind::kPackage).size() == 2);
  CHECK(find_link(graph, "host0/numa3", "host0/package1")->kind == LinkKind::kInternal);
  CHECK(find_link(graph, "host0/package0", "host0/package1")->forward ==
        Quantity{16, Origin::kTable});
  CHECK(find_link(graph, "host0/numa0", "host0/numa1") == nullptr);
  int xgmi = 0;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kXgmi) continue;
    ++xgmi;
    CHECK(link.forward == Quantity{48, Origin::kTable});
    CHECK(link.backward == link.forward);
  }
  CHECK(xgmi == 3);
  CHECK(node(graph, "host0/gpu2").index == 2);
  CHECK(node(graph, "host0/gpu2").facts.at("gfx") == "942");
  CHECK(imported.findings.empty());
}

TEST_CASE("A virtual machine's silence becomes findings, not figures") {
  MemoryTree tree;
  load(tree, "sysfs-vm");
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  const Link* const link = find_link(imported.graph, "host0/numa0", "host0/gpu0");
  REQUIRE(link != nullptr);
  CHECK(!link->forward.known());
  CHECK(link->pcie == Pcie{});
  CHECK(find_link(imported.graph, "host0/numa0", "host0/numa1")->forward.origin ==
        Origin::kAssumed);
  CHECK(node(imported.graph, "host0/nic0000:00:1d.0").facts.at("state") == "no driver");
  CHECK(codes(imported.findings) == std::multiset<std::string>{"numa-unknown", "nvlink-hidden",
                                                               "pci-flat", "pcie-rate-hidden",
                                                               "socket-assumed"});
}

TEST_CASE("Of nothing, the probe makes a host and says what is hidden") {
  const MemoryTree tree;
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  CHECK(imported.graph.nodes.size() == 2);
  CHECK(codes(imported.findings) == std::multiset<std::string>{"numa-hidden", "pci-hidden"});
  check_sound(probe_machine({"/nowhere/at/all", ""}));
  check_sound(probe_machine());  // Whatever machine this is.
}

TEST_CASE("Whatever one file of a machine says, or if it is gone, the graph is sound") {
  for (const std::string& name : kTrees) {
    MemoryTree tree;
    load(tree, name);
    for (const auto& [changed, item] : tree.items()) {
      for (const std::string& content :
           {std::string(), std::string("-1"), std::string("\xff\0 \n", 4),
            std::string("999999999999"), std::string("0-4096")}) {
        INFO(name << " " << changed);
        MemoryTree other;
        for (const auto& [path, kept] : tree.items()) {
          if (path != changed && kept.kind == FileTree::Kind::kFile) {
            other.add_file(path, kept.text);
          }
          if (kept.kind == FileTree::Kind::kLink && (path != changed || content == "-1")) {
            other.add_link(path, path == changed ? "../.." : kept.text);
          }
        }
        if (item.kind == FileTree::Kind::kFile && !content.empty()) {
          other.add_file(changed, content);
        }
        check_sound(probe_tree(other));
      }
    }
  }
}

TEST_CASE("Disk, memory and archive make the same graph; a capture makes it again") {
  for (const std::string& name : kTrees) {
    INFO(name);
    MemoryTree tree;
    load(tree, name);
    const TempDir dir;
    const std::string root = dir.path + "/top";
    fs::create_directories(root);
    write_out(tree, root);
    const Imported from_disk = probe_machine({root, ""});
    const Imported from_memory = probe_tree(tree);
    CHECK(from_disk.graph == from_memory.graph);
    CHECK(from_disk.findings == from_memory.findings);
    for (const char* ending : {".tar", ".tar.bz2", ".tar.gz"}) {
      const std::string file = dir.path + "/capture" + ending;
      REQUIRE(capture({root, ""}, file));
      const auto again = probe_archive(file);
      INFO((again ? "" : again.error().what));
      REQUIRE(again);
      CHECK(again->graph == from_disk.graph);
      CHECK(again->findings == from_disk.findings);
    }
    // Nothing but what the probe reads: the class of devices it has no interest in, but no more.
    const auto saved = read_archive_file(dir.path + "/capture.tar");
    REQUIRE(saved);
    CHECK((*saved)->items().size() <= tree.items().size() + 4);
  }
}

TEST_CASE("This machine's capture makes this machine's graph") {
  const TempDir dir;
  const Imported here = probe_machine();
  REQUIRE(capture({}, dir.path + "/here.tar.gz"));
  const auto again = probe_archive(dir.path + "/here.tar.gz");
  REQUIRE(again);
  CHECK(again->findings == here.findings);
  CHECK(again->graph.links == here.graph.links);
  CHECK(again->graph.notes == here.graph.notes);
  REQUIRE(again->graph.nodes.size() == here.graph.nodes.size());
}

TEST_CASE("NVML adds NVLinks, its numbers and what it refuses") {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  tree.add_file("/tutti/nvml.json", nvml_to_json(two_gpus()));
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  const Graph& graph = imported.graph;
  CHECK(node(graph, "host0/gpu0").bus == "0000:98:00.0");
  CHECK(node(graph, "host0/gpu1").bus == "0000:19:00.0");
  CHECK(node(graph, "host0/gpu1").index == 1);
  CHECK(node(graph, "host0/gpu1").facts.at("sm") == "90");
  CHECK(node(graph, "host0/gpu1").facts.at("nvlinks") == "17 of 18 active");
  CHECK(node(graph, "host0/gpu0").facts.at("no_p2p") == "gpu1:topology");
  CHECK(node(graph, "host0/gpu1").facts.count("no_p2p") == 0);
  const Link* const seen = find_link(graph, "host0/gpu1", "host0/nvswitch0");
  const Link* const hidden = find_link(graph, "host0/gpu1", "host0/nvswitch1");
  REQUIRE(seen != nullptr);
  REQUIRE(hidden != nullptr);
  CHECK(seen->count == 9);
  CHECK(hidden->count == 8);
  CHECK(hidden->forward.value == Approx(8 * 20.6));
  CHECK(hidden->backward == hidden->forward);
  CHECK(imported.findings.empty());
}

TEST_CASE("NVLinks between GPUs, C2C, and GPUs that sysfs hides") {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  NvmlFacts facts = two_gpus();
  for (std::size_t i = 0; i < 2; ++i) {
    for (NvmlLink& link : facts.gpus[i].links) {
      link.remote = NvmlLink::Remote::kGpu;
      link.bus = link.index < 4 ? facts.gpus[1 - i].bus : "0000:de:ad.0";
      link.active = link.index < 4 + static_cast<int>(i);
    }
  }
  facts.gpus[1].links[3].active = false;  // The two disagree.
  facts.gpus[0].c2c_count = 5;
  facts.gpus[0].c2c_gbs = 44.712;
  facts.gpus.push_back(facts.gpus[0]);
  facts.gpus[2].index = 2;
  facts.gpus[2].bus = "0000:ee:00.0";
  facts.gpus[2].links.clear();
  facts.gpus[2].c2c_count = 0;
  tree.add_file("/tutti/nvml.json", nvml_to_json(facts));
  const Imported imported = probe_tree(tree);
  check_sound(imported);
  const Graph& graph = imported.graph;
  const Link* link = find_link(graph, "host0/gpu0", "host0/gpu1");
  if (link == nullptr) link = find_link(graph, "host0/gpu1", "host0/gpu0");
  REQUIRE(link != nullptr);
  CHECK(link->kind == LinkKind::kNvlink);
  CHECK(link->count == 4);
  CHECK(link->forward.value + link->backward.value == Approx(7 * 20.6));
  CHECK(link->forward.value != link->backward.value);
  const Link* const c2c = find_link(graph, "host0/numa1", "host0/gpu0");
  REQUIRE(c2c != nullptr);
  CHECK(c2c->kind == LinkKind::kC2c);
  CHECK(c2c->forward.value == Approx(223.56));
  CHECK(find_link(graph, "host0/numa0", "host0/gpu2")->pcie->maximum == PcieRate{32, 16});
  CHECK(codes(imported.findings) == std::multiset<std::string>{"nvlink-peer-hidden", "pci-hidden"});
}

TEST_CASE("NVML's answers survive the capture, and nonsense is refused or left out") {
  const auto again = nvml_from_json(nvml_to_json(two_gpus()), "x");
  REQUIRE(again);
  CHECK(*again == two_gpus());
  const auto why = nvml_from_json(nvml_to_json(read_nvml("libnone-such.so.9")), "x");
  REQUIRE(!why);
  CHECK(why.error().what == "no NVML: there is no libnone-such.so.9");
  for (const char* text : {"", "[]", "{", "{\"gpus\": 3}", "{\"gpus\": [3]}"}) {
    INFO(text);
    CHECK(!nvml_from_json(text, "x"));
  }
  const auto odd = nvml_from_json(
      R"({"gpus": [{"index": 1e300, "bus": "x", "sm": "90", "pcie_current": [7, 300],
          "links": [3, {"remote": 99}], "p2p": [-1, 1e9]}]})",
      "x");
  REQUIRE(odd);
  REQUIRE(odd->gpus.size() == 1);
  CHECK(odd->gpus[0].bus.empty());
  CHECK(odd->gpus[0].sm == 0);
  CHECK(!odd->gpus[0].current.known());
  CHECK(odd->gpus[0].links.size() == 1);
  CHECK(odd->gpus[0].p2p == std::vector<int>{6, 6});
}

TEST_CASE("ACS is on where a bridge redirects peers' requests, completions, or all upstream") {
  for (unsigned bit = 0; bit < 7; ++bit) {
    std::string config(4096, '\0');
    config[0x100] = 0x0d;  // The extended capability ACS, the last of the list.
    config[0x106] = static_cast<char>(1U << bit);
    INFO(bit);
    // Bits 0 and 1 check requests, 5 and 6 are for virtual machines: none moves peers' traffic.
    CHECK(parse_config_space(config).acs == (bit >= 2 && bit <= 4));
    CHECK(!parse_config_space(config.substr(0, 256)).acs);  // Without privileges: not known.
  }
}

TEST_CASE("The probe tells what checks need: allowed CPUs, IOMMU types, lanes of devices") {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  const std::string slot = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:00.0";
  tree.add_file("/proc/42/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n");
  tree.add_file("/sys/kernel/iommu_groups/5/type", "DMA-FQ\n");
  tree.add_file(slot + "/max_link_width", "8\n");
  const Graph graph = probe_tree(tree).graph;
  CHECK(node(graph, "host0").facts.at("cpus_allowed") == "0-3");
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const bool narrow = graph[gpu].bus == "0000:19:00.0";
    CHECK(graph[gpu].facts.count("pcie_device_width") == (narrow ? 1U : 0U));
    if (!narrow) continue;
    CHECK(graph[gpu].facts.at("pcie_device_width") == "16");
    CHECK(graph[gpu].facts.at("iommu_type") == "DMA-FQ");
    // The lesser of both ends is what the link can do.
    const Link* const link = find_link(graph, "host0/pci0000:18:00.0", graph[gpu].name);
    REQUIRE(link != nullptr);
    CHECK(link->pcie->maximum == PcieRate{32, 8});
    CHECK(link->forward.value == Approx(24));
  }
}
