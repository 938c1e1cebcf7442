// Communicators of devices that take NCCL's topology files, and that write them
// (cuda/comm/host_graph.h, cuda/comm/topology_dump.h). The simulated devices are not really here,
// so that a probe knows none of them.
#include <filesystem>
#include <fstream>
#include <iterator>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"
#include "support/said_aside.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"
#include "topology/nccl/nccl_xml.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using topology::NodeKind;

// Before anything asks for it.
const bool kOnPcie = setenv("SIMT_MACHINE", "pcie-8", 1) == 0;

std::string file_of(const test::ScratchDirectory& folder, const std::string& text) {
  static int number = 0;
  const std::string path = folder.path() + "/" + std::to_string(number++) + ".xml";
  std::ofstream(path) << text;
  return path;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

topology::Graph machine() {
  auto graph = topology::model("pcie-8");
  REQUIRE(graph);
  // NCCL's files say which processors these are, and it knows what joins their sockets.
  for (topology::Node& node : graph->nodes) {
    if (node.kind != NodeKind::kNuma) continue;
    node.facts["arch"] = "x86_64";
    node.facts["vendor"] = "AuthenticAMD";
  }
  return *std::move(graph);
}

std::string xml_of(const topology::Graph& graph) {
  const auto text = topology::write_nccl_xml(graph);
  INFO((text ? "" : text.error().what));
  REQUIRE(text);
  return *text;
}

Settings settings_with(const std::string& topology) {
  Settings settings = test::small_settings();
  settings.lanes = 8;
  settings.slot_bytes = 65536;
  settings.topology = topology;
  return settings;
}

std::string taken(const DeviceCommunicator& comm) {
  const auto text = comm.explain({.collective = Collective::kAllReduce,
                                  .count = std::size_t{1} << 28,
                                  .type = DataType::kFloat32});
  return text ? *text : text.error().to_string();
}

TEST_CASE("plans are chosen by a file of NCCL") {
  REQUIRE(kOnPcie);
  const test::ScratchDirectory files;
  const std::string path = file_of(files, xml_of(machine()));
  const DeviceCluster cluster({0, 1, 2, 3, 4, 5, 6, 7}, settings_with(path));
  REQUIRE(cluster.complaint.empty());
  CHECK_THAT(cluster.comms[3].describe(), Catch::Contains("plans by: topology of " + path + "\n"));
  CHECK_THAT(taken(cluster.comms[0]), Catch::Contains("halving_doubling"));
}

TEST_CASE("a file of another machine, or one that lacks devices, is told once and not used") {
  const test::ScratchDirectory files;
  topology::Graph graph = machine();
  for (topology::Node& node : graph.nodes) {
    if (!node.bus.empty()) node.bus.replace(0, 4, "beef");
  }
  std::string path = file_of(files, xml_of(graph));
  std::string said;
  const auto use = [&] {
    said = test::said_aside([&] {
      for (int round = 0; round < 2; ++round) {
        const DeviceCluster cluster({0, 1}, settings_with(path));
        CHECK(cluster.complaint == "");
        CHECK_THAT(cluster.comms[1].describe(), Catch::Contains(" (probe, not " + path + ")"));
      }
    });
  };
  use();
  const std::string head = "TUTTI_TOPOLOGY=" + path + ": it is not used, and the host is probed: ";
  CHECK_THAT(said, Catch::Contains(head + "it has no PCI address of this host"));
  CHECK(said.find("TUTTI_TOPOLOGY=") == said.rfind("TUTTI_TOPOLOGY=" + path));

  graph = machine();
  graph[graph.find("host0/gpu1")].bus = "0000:ee:00.0";
  path = file_of(files, xml_of(graph));
  use();
  CHECK_THAT(said, Catch::Contains("neither it nor the host shows device 0000:"));

  path = file_of(files, "<system version=\"1\"><cpu numaid=\"0\"/></system>");
  use();
  CHECK_THAT(said, Catch::Contains("it has no PCI address of this host"));
}

TEST_CASE("a file of NCCL that is damaged is an error that says where") {
  const test::ScratchDirectory files;
  const std::string whole = xml_of(machine());
  const auto complaint = [&](const std::string& text) {
    const std::string path = file_of(files, text);
    const DeviceCluster cluster({0, 1}, settings_with(path));
    CHECK_THAT(cluster.complaint, Catch::Contains("TUTTI_TOPOLOGY=" + path + ": "));
    CHECK(cluster.complaint.find('\n') == std::string::npos);
    return cluster.complaint;
  };
  CHECK_THAT(complaint("<system version=\"1\"/>"),
             Catch::Contains(":1: a <system> without any <cpu>; TUTTI_TOPOLOGY_DUMP=FILE writes"));
  CHECK_THAT(complaint(whole.substr(0, whole.size() / 2)), Catch::Contains(": XML: "));
  CHECK_THAT(complaint("<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"x\"/></cpu></system>"),
             Catch::Contains("pci needs busid"));
  CHECK_THAT(complaint("<topology/>"), Catch::Contains("the text form and NCCL's XML alone"));
  CHECK_THAT(complaint(whole + std::string(std::size_t{512} << 10, ' ')),
             Catch::Contains("longer than 524288 bytes"));
}

TEST_CASE("one rank writes the topology that is used, with the ranks of the GPUs") {
  const test::ScratchDirectory files;
  Settings settings = settings_with(file_of(files, xml_of(machine())));
  settings.topology_dump = files.path() + "/dump.xml";
  const auto make = [&](const std::vector<int>& devices) {
    const DeviceCluster cluster(devices, settings);
    CHECK(cluster.complaint == "");
  };
  make({2, 0, 5});
  auto read = topology::read_nccl_xml(contents(settings.topology_dump), "dump");
  REQUIRE(read);
  std::string ranks;
  for (const topology::NodeId gpu : read->graph.all(NodeKind::kGpu)) {
    const std::string& rank = topology::fact(read->graph[gpu], "rank");
    ranks += rank.empty() ? "-" : rank;
  }
  CHECK(ranks == "1-0--2--");
  CHECK(read->graph.all(NodeKind::kGpu).size() == machine().all(NodeKind::kGpu).size());

  // Another rank, of which there is none at first; with a single device too.
  std::filesystem::remove(settings.topology_dump);
  settings.topology_dump_rank = 1;
  make({0});
  CHECK_FALSE(std::filesystem::exists(settings.topology_dump));
  make({0, 1});
  CHECK(std::filesystem::exists(settings.topology_dump));
  settings.topology_dump_rank = 0;
  settings.topology = "";
  settings.topology_dump = files.path() + "/probed.xml";
  make({0});
  CHECK_THAT(contents(settings.topology_dump), Catch::StartsWith("<system "));
}

TEST_CASE("a topology that can't be written is a warning, and the communicator works") {
  const test::ScratchDirectory files;
  Settings settings = settings_with(file_of(files, xml_of(machine())));
  settings.topology_dump = files.path() + "/nowhere/dump.xml";
  const std::string said = test::said_aside([&] {
    DeviceCluster cluster({0, 1}, settings);
    CHECK(cluster.complaint == "");
    CHECK(cluster.comms.size() == 2);
  });
  CHECK_THAT(said, Catch::Contains("TUTTI_TOPOLOGY_DUMP=" + settings.topology_dump +
                                   ": it was not written: "));
}

}  // namespace
}  // namespace tutti
