// NCCL's and RCCL's topology files: what is read, what is refused, what comes back when written.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "topology/graph/nccl_figures.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/nccl/xml.h"
#include "topology/readers/reader.h"

using namespace tutti;
using namespace tutti::topology;
using test::machine_text;

namespace {

constexpr std::string_view kGpus =
    "<system version=\"1\">\n<cpu numaid=\"0\" arch=\"x86_64\" vendor=\"AuthenticAMD\">\n"
    "<pci busid=\"0000:07:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
    "<gpu dev=\"0\" sm=\"80\" rank=\"0\">A</gpu></pci>\n"
    "<pci busid=\"0000:0a:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
    "<gpu dev=\"1\" sm=\"80\" rank=\"1\">B</gpu></pci>\n</cpu>\n</system>\n";

/// Two GPUs with these elements inside.
std::string two(std::string_view a, std::string_view b) {
  std::string text(kGpus);
  text.replace(text.find(">B<") + 1, 1, b);
  text.replace(text.find(">A<") + 1, 1, a);
  return text;
}

std::string nvlink(std::string_view target, int count, std::string_view type = "0x030200") {
  return fmt::format("<nvlink target=\"{}\" count=\"{}\" tclass=\"{}\"/>", target, count, type);
}

std::string refusal(std::string_view text) {
  const auto imported = import(text, "t");
  return imported ? "accepted" : imported.error().what;
}

bool has(const Imported& imported, std::string_view code) {
  return std::any_of(imported.findings.begin(), imported.findings.end(),
                     [&](const Finding& finding) { return finding.code == code; });
}

Graph nccl(std::string_view text) {
  auto imported = import(text, "t");
  INFO((imported ? "" : imported.error().what));
  REQUIRE(imported);
  return std::move(imported->graph);
}

/// Every attribute of a file as "path name=value"; a path has the bus addresses on the way.
std::multiset<std::string> attributes(std::string_view text) {
  auto xml = Xml::parse(text, "x");
  REQUIRE(xml);
  std::multiset<std::string> found;
  struct Walker : pugi::xml_tree_walker {
    explicit Walker(std::multiset<std::string>& found) : found_(found) {}
    bool for_each(pugi::xml_node& node) override {
      std::string path;
      for (pugi::xml_node at = node; at; at = at.parent()) {
        path = fmt::format("{}{}{}/{}", at.name(), at.attribute("busid").value(),
                           at.attribute("target").value(), path);
      }
      for (const auto attribute : node.attributes()) {
        found_.insert(fmt::format("{} {}={}", path, attribute.name(), attribute.value()));
      }
      return true;
    }
    std::multiset<std::string>& found_;
  } walker(found);
  pugi::xml_node root = xml->root();
  root.traverse(walker);
  return found;
}

}  // namespace

TEST_CASE("what is read and written has every attribute, and is the same graph again") {
  for (const char* name : {"two_gpus.nccl.xml", "mi300_pair.rccl.xml"}) {
    INFO(name);
    const std::string text = machine_text(name);
    const Graph graph = nccl(text);
    const auto written = write_nccl_xml(graph);
    REQUIRE(written);
    const auto before = attributes(text);
    REQUIRE(before.size() > 20);
    CHECK(attributes(*written) == before);
    CHECK(nccl(*written) == graph);
    CHECK(written->find('\t') == std::string::npos);
    CHECK(written->starts_with("<system "));
  }
}

TEST_CASE("a file that NCCL's own parser would break at is read, and said to be so") {
  const std::string text = "<?xml version=\"1.0\"?>\n" + std::string(kGpus) + "\t";
  const auto imported = import(text, "t");
  REQUIRE(imported);
  CHECK(has(*imported, "nccl-cannot-read"));
  CHECK(has(*imported, "nccl-cannot-read-tabs"));
  CHECK_FALSE(has(*import(kGpus, "t"), "nccl-cannot-read"));
}

TEST_CASE("figures: NVLink by chip, PCI by rate, socket by vendor, C2C, xGMI, ports") {
  const Graph graph = nccl(machine_text("two_gpus.nccl.xml"));
  const auto figure = [&](LinkKind kind, const char* end) {
    for (const Link& link : graph.links) {
      const bool there = graph[link.a].name == end || graph[link.b].name == end;
      if (link.kind == kind && there) return link.forward;
    }
    return Quantity{};
  };
  CHECK(figure(LinkKind::kNvlink, "host0/gpu0") == Quantity{82.4, Origin::kTable});
  CHECK(figure(LinkKind::kNvlink, "host0/nvswitch0") == Quantity{123.6, Origin::kTable});
  CHECK(figure(LinkKind::kC2c, "host0/gpu1") == Quantity{223.56, Origin::kReportedMaximum});
  CHECK(figure(LinkKind::kPcie, "host0/gpu1") == Quantity{12, Origin::kReportedMaximum});
  CHECK(figure(LinkKind::kSocket, "host0/numa0") == Quantity{22, Origin::kTable});
  CHECK(figure(LinkKind::kPort, "host0/mlx5_0") == Quantity{50, Origin::kReportedCurrent});
  const Graph amd = nccl(machine_text("mi300_pair.rccl.xml"));
  for (const Link& link : amd.links) {
    if (link.kind == LinkKind::kXgmi) CHECK(link.forward == Quantity{48, Origin::kTable});
  }
}

TEST_CASE("a function with two ports is a card; a NIC directly under a cpu is one of no PCI") {
  const Graph graph = nccl(machine_text("two_gpus.nccl.xml"));
  CHECK(graph[graph.find("host0/pci0000:18:00.0")].kind == NodeKind::kCard);
  CHECK(graph[graph.find("host0/mlx5_1")].kind == NodeKind::kNic);
  CHECK(graph[graph.find("host0/socket0")].bus.empty());
}

TEST_CASE("a net without PCI that several cpus list is one device") {
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"(<system version="1"><cpu numaid="0"><nic>{}</nic></cpu>
<cpu numaid="1"><nic>{}</nic></cpu></system>)",
                       first, second);
  };
  constexpr std::string_view kEth0 = R"(<net name="eth0" dev="0" speed="10000"/>)";
  const auto once = import(two(kEth0, kEth0), "t");
  REQUIRE(once);
  CHECK(once->graph.all(NodeKind::kNic).size() == 1);
  CHECK(has(*once, "net-twice"));
  for (const std::string_view other : {R"(<net name="eth0" dev="1" speed="10000"/>)",
                                       R"(<net name="eth1" dev="0" speed="10000"/>)"}) {
    const auto each = import(two(kEth0, other), "t");
    REQUIRE(each);
    CHECK(each->graph.all(NodeKind::kNic).size() == 2);
    CHECK_FALSE(has(*each, "net-twice"));
  }
}

TEST_CASE("what NCCL would refuse or mix up is said, with its line") {
  const auto imported = import(R"(<system version="9">
<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" modelid="143">
<pci busid="0000:01:00.0"><gpu dev="0" sm="90"/></pci>
<pci busid="0000:02:00.0"><gpu dev="0" sm="90"/></pci>
<pci busid="0000:03:00.0"><nic><net name="a" dev="0" speed="1e400"/></nic></pci>
</cpu></system>)",
                               "t");
  REQUIRE(imported);
  const auto where = [&](std::string_view code) {
    for (const Finding& finding : imported->findings) {
      if (finding.code == code) return finding.where;
    }
    return std::string();
  };
  CHECK(where("nccl-version") == "t:1");
  CHECK(where("gpu-dev-twice") == "t:4");
  CHECK(where("nic-speed-unknown") == "t:5");
  for (const std::string_view version : {"1", "2"}) {
    const auto known =
        import(fmt::format(R"(<system version="{}"><cpu numaid="0"/></system>)", version), "t");
    REQUIRE(known);
    CHECK_FALSE(has(*known, "nccl-version"));
  }
}

TEST_CASE("GPUs of a file that gives none a number are counted by address") {
  constexpr std::string_view kFile = R"(<system version="1"><cpu numaid="0">
<pci busid="0000:20:00.0" class="0x030200"/><pci busid="0000:10:00.0" class="0x030200">{}</pci>
</cpu></system>)";
  const Graph bare = nccl(fmt::format(fmt::runtime(kFile), ""));
  CHECK(bare[bare.find("host0/gpu0")].bus == "0000:10:00.0");
  CHECK(bare[bare.find("host0/gpu1")].bus == "0000:20:00.0");
  const Graph one = nccl(fmt::format(fmt::runtime(kFile), R"(<gpu dev="1" sm="80"/>)"));
  CHECK(one[one.find("host0/gpu1")].bus == "0000:10:00.0");
  CHECK(one.find("host0/gpu0000:20:00.0").exists());
}

TEST_CASE("impossible NVLinks: to itself, more than the chip has") {
  CHECK(refusal(two(nvlink("0000:07:00.0", 12), nvlink("0000:0a:00.0", 12))) ==
        "t:3: gpu 0000:07:00.0 has 12 nvlinks to itself; the file is defective: dump a new one "
        "with NCCL_TOPO_DUMP_FILE");
  CHECK(refusal(two(nvlink("0000:0a:00.0", 13), nvlink("0000:07:00.0", 13)))
            .starts_with("t: host0/gpu0 has 13 NVLinks, and a chip of sm 80 has at most 12"));
  CHECK(refusal(two(nvlink("0000:0a:00.0", 0), "")) ==
        "t:3: nvlink needs target and count (1 to 1024)");
}

TEST_CASE("NVLinks that only one side lists, or that lead out of the file") {
  const auto uneven = import(two(nvlink("0000:0a:00.0", 4), nvlink("0000:07:00.0", 2)), "t");
  REQUIRE(uneven);
  CHECK(has(*uneven, "unequal-reverse"));
  const auto written = write_nccl_xml(uneven->graph);
  REQUIRE(written);
  CHECK(written->find("target=\"0000:07:00.0\" count=\"2\"") != std::string::npos);
  const auto one_way = import(two(nvlink("0000:0a:00.0", 4), ""), "t");
  REQUIRE(one_way);
  CHECK(has(*one_way, "unequal-reverse"));
  const auto missing = import(two(nvlink("0000:99:00.0", 4), ""), "t");
  REQUIRE(missing);
  CHECK(has(*missing, "nvlink-target-missing"));
}

TEST_CASE("hidden switches are one node, switches with addresses are told apart") {
  const auto count = [](const std::string& a, const std::string& b) {
    return nccl(two(a, b)).all(NodeKind::kNvSwitch).size();
  };
  for (const char* hidden : {"fffffff:ffff:ff", "fffffff:ff:ff.0"}) {
    const std::string link = nvlink(hidden, 6, "0x068000");
    CHECK(count(link, link) == 1);
  }
  const std::string both =
      nvlink("0000:c1:00.0", 2, "0x068000") + nvlink("0000:c2:00.0", 2, "0x068000");
  CHECK(count(both, both) == 2);
}

TEST_CASE("POWER: NVLinks to the bridge of a processor join the GPU to its NUMA node") {
  const std::string text = two(nvlink("0004:04:00.0", 3, "0x068001"), "");
  const Graph graph = nccl(text);
  const auto link = std::find_if(graph.links.begin(), graph.links.end(),
                                 [](const Link& at) { return at.kind == LinkKind::kNvlink; });
  REQUIRE(link != graph.links.end());
  CHECK(graph[link->a].kind == NodeKind::kNuma);
  CHECK(link->count == 3);
  const auto written = write_nccl_xml(graph);
  REQUIRE(written);
  CHECK(written->find("target=\"0004:04:00.0\" count=\"3\" tclass=\"0x068001\"") !=
        std::string::npos);
}

TEST_CASE("rates: texts that NCCL does not know, empty ones, no width") {
  const auto with = [](std::string_view speed, std::string_view width) {
    const std::string text = fmt::format(
        "<system><cpu numaid=\"0\"><pci busid=\"0:1:0.0\" class=\"0x030200\" link_speed=\"{}\" "
        "link_width=\"{}\"/></cpu></system>",
        speed, width);
    auto imported = import(text, "t");
    REQUIRE(imported);
    const auto written = write_nccl_xml(imported->graph);
    REQUIRE(written);
    CHECK(written->find(fmt::format("link_speed=\"{}\" link_width=\"{}\"", speed, width)) !=
          std::string::npos);
    return *std::move(imported);
  };
  const Imported aws = with("32 GT/s PCIe/s", "16");
  CHECK(has(aws, "nccl-link-speed"));
  CHECK(aws.graph.links.at(0).forward == Quantity{48, Origin::kReportedMaximum});
  const Imported fine = with("16.0 GT/s PCIe", "8");
  CHECK_FALSE(has(fine, "nccl-link-speed"));
  CHECK(fine.graph.links.at(0).forward == Quantity{12, Origin::kReportedMaximum});
  const Imported unknown = with("", "0");
  CHECK(has(unknown, "pcie-speed-unknown"));
  CHECK(has(unknown, "pcie-width-unknown"));
  CHECK(unknown.graph.links.at(0).forward == Quantity{12, Origin::kAssumed});
}

TEST_CASE("errors have the line") {
  const auto inside = [](std::string_view text) {
    return refusal(fmt::format(
        "<!-- a\ncomment -->\n<system>\n<cpu numaid=\"0\">\n{}\n</cpu></system>", text));
  };
  CHECK(inside("<pci/>") == "t:5: pci needs busid, as in 0000:07:00.0, not ''");
  CHECK(inside("<pci busid=\"0:1:2.3\"/>\n<pci busid=\"0000:01:02.3\"/>") ==
        "t:6: a second pci with busid 0000:01:02.3");
  CHECK(inside("<gpu dev=\"0\"/>") == "t:5: <gpu> directly in <cpu>; it needs a <pci>");
  CHECK(inside("</cpu><cpu numaid=\"0\">") == "t:5: a second cpu with numaid 0");
  CHECK(inside("</cpu><cpu>") == "t:5: cpu needs numaid, a whole number from -1 on, not ''");
  CHECK(inside("<pci").starts_with("t:6: XML: "));
  CHECK(refusal("<system/>") == "t:1: a <system> without any <cpu>");
}

TEST_CASE("a graph of ports and packages is written without them, and without foreign facts") {
  const auto imported = import_file(test::machine_path("two_gpus.hwloc2.xml"));
  REQUIRE(imported);
  const auto written = write_nccl_xml(imported->graph);
  REQUIRE(written);
  CHECK(written->find("0000:15:01.0") == std::string::npos);
  CHECK(written->find("gpumodel") == std::string::npos);
  const Graph again = nccl(*written);
  CHECK(again.all(NodeKind::kGpu).size() == 2);
  CHECK(again.all(NodeKind::kPcieSwitch).size() == 1);
  CHECK(again.all(NodeKind::kNic).size() == 1);
}

TEST_CASE("every GPU is written, however it hangs off its host, or it is an error") {
  const auto check = [](const Graph& graph, const std::string& name) {
    INFO(name);
    const auto written = write_nccl_xml(graph);
    const std::size_t gpus = graph.all(NodeKind::kGpu).size();
    if (written) CHECK(nccl(*written).all(NodeKind::kGpu).size() == gpus);
    return static_cast<bool>(written);
  };
  for (const Model* each : models()) {
    const auto graph = model(std::string(each->name) + ":1");
    REQUIRE(graph);
    CHECK(check(*graph, std::string(each->name)));
  }
  for (const LinkKind kind : {LinkKind::kPcie, LinkKind::kInternal, LinkKind::kC2c,
                              LinkKind::kNvlink, LinkKind::kSocket}) {
    for (const bool below_a_port : {false, true}) {
      Graph graph;
      const NodeId host = graph.add({NodeKind::kHost, "host0"});
      const NodeId numa = graph.add({NodeKind::kNuma, "host0/numa0", host, 0});
      const NodeId port =
          graph.add({NodeKind::kPciePort, "host0/pci0000:01:00.0", host, -1, "0000:01:00.0"});
      graph.join(LinkKind::kInternal, numa, port);
      const NodeId gpu = graph.add({NodeKind::kGpu, "host0/gpu0", host, 0, "0000:02:00.0"});
      graph.join(kind, below_a_port ? port : numa, gpu);
      const bool made = check(graph, std::string(to_string(kind)));
      CHECK(made == (kind == LinkKind::kPcie || kind == LinkKind::kInternal ||
                     (kind == LinkKind::kC2c && !below_a_port)));
    }
  }
}

TEST_CASE("what can't be written is an error") {
  CHECK(write_nccl_xml(Graph{}).error().what ==
        "write NCCL XML: the graph has no NUMA node, and NCCL's files begin with them");
  const auto matrix = import_file(test::machine_path("four_gpus.matrix.txt"));
  REQUIRE(matrix);
  const auto written = write_nccl_xml(matrix->graph);
  REQUIRE_FALSE(written);
  CHECK(written.error().what.find("has no PCI address") != std::string::npos);
  Graph deep;
  NodeId last = deep.add({NodeKind::kNuma, "n", {}, 0, "", {}});
  for (int i = 0; i < 100'000; ++i) {
    const NodeId next = deep.add(
        {NodeKind::kPcieSwitch, fmt::format("s{}", i), {}, -1, fmt::format("{:x}", i), {}});
    deep.add(Link{LinkKind::kPcie, last, next, 1, {}, {}, {}, {}});
    last = next;
  }
  const auto nested = write_nccl_xml(deep);
  REQUIRE_FALSE(nested);
  CHECK(nested.error().what.starts_with("write NCCL XML: PCI devices nested more than 64"));
}

TEST_CASE("PCI addresses and rates as texts") {
  CHECK(pci_address("00000000:07:00.0") == "0000:07:00.0");
  CHECK(pci_address("10000:E1:0A.7") == "10000:e1:0a.7");
  CHECK(pci_address("0000:07:00") == "");
  CHECK(pci_address("0000:07:00.0 ") == "");
  CHECK(pci_address("0000:107:00.0") == "");
  CHECK(pci_address("fffffff:ffff:ff") == "");
  CHECK(link_speed("2.5 GT/s") == 2.5);
  CHECK_FALSE(link_speed("Unknown speed"));
  CHECK_FALSE(link_speed("-1 GT/s"));
}

TEST_CASE("models and readers say the same of an NVLink of the same chip") {
  int links = 0;
  for (const Model* known : models()) {
    const auto graph = model(known->name);
    REQUIRE(graph);
    for (const Link& link : graph->links) {
      if (link.kind != LinkKind::kNvlink) continue;
      const auto sm = (*graph)[link.a].facts.find("sm");
      if (sm == (*graph)[link.a].facts.end()) continue;
      INFO(known->name << " " << sm->second);
      const Quantity each = nvlink_bandwidth(std::stoi(sm->second));
      REQUIRE(each.origin == Origin::kTable);
      REQUIRE(link.forward.value == Approx(each.value * link.count));
      ++links;
    }
  }
  REQUIRE(links > 100);
}
