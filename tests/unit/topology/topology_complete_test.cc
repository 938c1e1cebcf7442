// What a file of NCCL leaves to the machine: files as clouds ship them, and what a probe of the
// machine that they are for says (topology/nccl/complete.h).
#include <algorithm>
#include <cmath>

#include "support/catch.h"
#include "support/topology/topology_tree.h"
#include "topology/graph/text.h"
#include "topology/graph/validate.h"
#include "topology/nccl/complete.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/probe/probe.h"

using namespace tutti;
using namespace tutti::topology;

namespace {

Graph nccl(std::string_view text) {
  auto read = read_nccl_xml(text, "x");
  INFO((read ? "" : read.error().what));
  REQUIRE(read);
  return std::move(read->graph);
}

/// A virtual machine: it shows a flat tree of PCI Express, but all NVLinks.
Graph virtual_machine() {
  auto graph = parse_graph(
      "tutti topology 1\n"
      "host h .hostname=vm7\n"
      "numa h/numa0 host=h index=0 .cpus=0-3\n"
      "numa h/numa1 host=h index=1 .cpus=4-7\n"
      "pcie_port h/root host=h bus=0000:00:01.0\n"
      "gpu h/gpu0 host=h index=0 bus=0001:00:00.0 .sm=80 .vendor=0x10de\n"
      "gpu h/gpu1 host=h index=1 bus=0002:00:00.0 .sm=80 .vendor=0x10de\n"
      "nic h/mlx5_0 host=h index=0 bus=0101:00:00.0 .speed_mbps=200000\n"
      "nvswitch h/nvswitch0 host=h\n"
      "plane network\n"
      "pcie h/numa0 h/gpu0 forward=12:current backward=12:current\n"
      "internal h/numa0 h/root\n"
      "pcie h/root h/gpu1 forward=12:current backward=12:current\n"
      "pcie h/numa0 h/mlx5_0 forward=12:current backward=12:current\n"
      "nvlink h/gpu0 h/nvswitch0 count=12 forward=240:table backward=240:table\n"
      "nvlink h/gpu1 h/nvswitch0 count=12 forward=240:table backward=240:table\n"
      "port h/mlx5_0 network forward=25:current backward=25:current\n",
      "vm");
  INFO((graph ? "" : graph.error().what));
  REQUIRE(graph);
  return *std::move(graph);
}

NodeId at(const Graph& graph, std::string_view bus) {
  const auto found = std::ranges::find(graph.nodes, bus, &Node::bus);
  REQUIRE(found != graph.nodes.end());
  return {static_cast<std::uint32_t>(found - graph.nodes.begin())};
}

/// The link of a kind to a node, as text: what is on the other side and the rate.
std::string link_to(const Graph& graph, LinkKind kind, NodeId node) {
  std::string text;
  for (const Link& link : graph.links) {
    if (link.kind != kind || (link.a != node && link.b != node)) continue;
    const NodeId other = link.a == node ? link.b : link.a;
    text += graph[other].name + " " + std::to_string(std::lround(link.forward.value)) + ";";
  }
  return text;
}

void require_sound(const Graph& graph) {
  const auto sound = validate(graph, "completed");
  INFO(print(graph) << (sound ? "" : sound.error().what));
  REQUIRE(sound);
  REQUIRE(parse_graph(print(graph), "again"));
  const auto written = write_nccl_xml(graph);
  INFO((written ? "" : written.error().what));
  REQUIRE(written);
}

// As on Azure: switches that no machine shows, and addresses of devices.
constexpr std::string_view kSwitches =
    "<system version=\"1\">\n"
    "<cpu numaid=\"0\" affinity=\"0f\" arch=\"x86_64\" vendor=\"AuthenticAMD\" familyid=\"23\">\n"
    "<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n"
    "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
    "<pci busid=\"0101:00:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\"/>\n"
    "<pci busid=\"0002:00:00.0\" class=\"0x030200\"/>\n"
    "</pci></cpu></system>\n";

}  // namespace

TEST_CASE("a file of switches and addresses gets NVLinks, names, facts and missing rates") {
  Graph graph = nccl(kSwitches);
  complete(graph, virtual_machine());
  require_sound(graph);
  const NodeId gpu0 = at(graph, "0001:00:00.0"), gpu1 = at(graph, "0002:00:00.0");
  const NodeId nic = at(graph, "0101:00:00.0");
  CHECK(graph[gpu0].name == "host0/gpu0");
  CHECK(graph[gpu1].index == 1);
  CHECK(fact(graph[gpu1], "sm") == "80");
  CHECK(fact(graph[nic], "speed_mbps") == "200000");
  CHECK(graph[nic].name == "host0/mlx5_0");
  // What the file says of PCI Express holds; for the second GPU it says no rate.
  CHECK(link_to(graph, LinkKind::kPcie, gpu0) == "host0/pciffff:ff:01.0 24;");
  CHECK(link_to(graph, LinkKind::kPcie, gpu1) == "host0/pciffff:ff:01.0 12;");
  CHECK(link_to(graph, LinkKind::kNvlink, gpu0) == "host0/nvswitch0 240;");
  CHECK(link_to(graph, LinkKind::kNvlink, gpu1) == "host0/nvswitch0 240;");
  CHECK(link_to(graph, LinkKind::kPort, nic) == "network 25;");
  const NodeId numa = graph.all(NodeKind::kNuma).front();
  CHECK(fact(graph[numa], "cpus") == "0-3");
  CHECK(fact(graph[graph.all(NodeKind::kHost).front()], "hostname") == "vm7");
  CHECK(graph.all(NodeKind::kGpu).size() == 2);
  // Nothing is added a second time.
  const Graph once = graph;
  complete(graph, virtual_machine());
  CHECK(print(graph) == print(once));
}

TEST_CASE("a file without GPUs and classes gets them below the switches that it names") {
  // As some of AWS's.
  Graph graph = nccl(
      "<system version=\"1\">\n<cpu numaid=\"1\"><pci busid=\"0000:00:01.0\">\n"
      "<pci busid=\"0101:00:00.0\" link_speed=\"32 GT/s PCIe/s\" link_width=\"16\"/>\n"
      "</pci></cpu></system>\n");
  complete(graph, virtual_machine());
  require_sound(graph);
  const NodeId nic = at(graph, "0101:00:00.0");
  CHECK(graph[nic].kind == NodeKind::kNic);
  CHECK(link_to(graph, LinkKind::kPort, nic) == "network 25;");
  CHECK(link_to(graph, LinkKind::kPcie, nic) == "host0/pci0000:00:01.0 48;");
  CHECK(link_to(graph, LinkKind::kPcie, at(graph, "0002:00:00.0")) == "host0/pci0000:00:01.0 12;");
  // The machine says NUMA node 0, which the file lacks: it is on the first that there is.
  CHECK(link_to(graph, LinkKind::kPcie, at(graph, "0001:00:00.0")) == "host0/numa1 12;");
  CHECK(link_to(graph, LinkKind::kNvlink, at(graph, "0002:00:00.0")) == "host0/nvswitch0 240;");
}

TEST_CASE("what a file says of NVLinks holds, and a graph of several hosts stays as it is") {
  const Graph read = nccl(
      "<system version=\"1\">\n<cpu numaid=\"0\">\n"
      "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
      "<gpu dev=\"0\" sm=\"80\"><nvlink target=\"0002:00:00.0\" count=\"4\" tclass=\"0x030200\"/>"
      "</gpu></pci>\n"
      "<pci busid=\"0002:00:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
      "<gpu dev=\"1\" sm=\"80\"><nvlink target=\"0001:00:00.0\" count=\"4\" tclass=\"0x030200\"/>"
      "</gpu></pci>\n</cpu></system>\n");
  Graph graph = read;
  complete(graph, virtual_machine());
  require_sound(graph);
  CHECK(graph.all(NodeKind::kNvSwitch).empty());
  CHECK(link_to(graph, LinkKind::kNvlink, at(graph, "0001:00:00.0")) == "host0/gpu1 80;");
  Graph two = read;
  two.add({NodeKind::kHost, "host1"});
  const Graph before = two;
  complete(two, virtual_machine());
  CHECK(two == before);
}

TEST_CASE("a machine's own dump, completed by the machine, has no more devices than it has") {
  for (const char* name : {"sysfs-hgx", "sysfs-vm", "sysfs-mi300x"}) {
    INFO(name);
    MemoryTree tree;
    load(tree, name);
    const Graph machine = probe_tree(tree).graph;
    const auto written = write_nccl_xml(machine);
    INFO((written ? "" : written.error().what));
    REQUIRE(written);
    Graph graph = nccl(*written);
    complete(graph, machine);
    require_sound(graph);
    for (const NodeKind kind : {NodeKind::kGpu, NodeKind::kNic})
      CHECK(graph.all(kind).size() == machine.all(kind).size());
  }
}

TEST_CASE("what joins two sockets comes from the machine if the file names no processors") {
  MemoryTree tree;
  load(tree, "sysfs-hgx");
  const Graph machine = probe_tree(tree).graph;
  Graph graph = nccl("<system version=\"1\"><cpu numaid=\"0\"/><cpu numaid=\"1\"/></system>");
  const auto rate = [](const Graph& of) {
    for (const Link& link : of.links) {
      if (link.kind == LinkKind::kSocket) return link.forward;
    }
    return Quantity{};
  };
  REQUIRE(rate(machine).known());
  CHECK_FALSE(rate(graph).known());
  complete(graph, machine);
  require_sound(graph);
  CHECK(rate(graph).value == rate(machine).value);
}

TEST_CASE("files of other machines, and devices that nobody shows, are told") {
  const Graph machine = virtual_machine();
  Graph graph = nccl(kSwitches);
  CHECK(shares_address(graph, machine, {}));
  CHECK(missing_gpus(graph, std::vector<std::string>{"0001:00:00.0", "0003:00:00.0"}) ==
        std::vector<std::string>{"0003:00:00.0"});
  CHECK(missing_gpus(graph, std::vector<std::string>{"0101:00:00.0"}).size() == 1);  // A NIC.
  const Graph other = nccl(
      "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:77:00.0\" class=\"0x030200\"/>"
      "</cpu></system>");
  CHECK_FALSE(shares_address(other, machine, {}));
  CHECK(shares_address(other, machine, std::vector<std::string>{"0000:77:00.0"}));
  CHECK_FALSE(
      shares_address(nccl("<system version=\"1\"><cpu numaid=\"0\"/></system>"), machine, {}));
}
