// Communicators of devices take the graph of their host from a file, or from what is there: what
// they choose by it, and what they say where there is none (cuda/comm/host_graph.h).
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <regex>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

using test::DeviceCluster;

// Before anything asks for it.
const bool kOnPcie = setenv("SIMT_MACHINE", "pcie-8", 1) == 0;

/// A file that goes with the test.
class File {
 public:
  explicit File(const std::string& text, const std::string& name = "")
      : path_(std::filesystem::temp_directory_path() /
              ("tutti_topology_test_" + std::to_string(getpid()) + name + ".topo")) {
    std::ofstream(path_) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string text_of(const char* model) {
  const auto graph = topology::model(model);
  REQUIRE(graph);
  return topology::print(*graph);
}

Settings settings_with(const std::string& topology) {
  Settings settings = test::small_settings();
  settings.lanes = 8;
  settings.slot_bytes = 65536;
  settings.topology = topology;
  return settings;
}

bool has(const std::string& text, const std::string& words) {
  INFO(text << "\n" << words);
  CHECK(text.find(words) != std::string::npos);
  return text.find(words) != std::string::npos;
}

/// What is said of an all-reduce of 1 GiB, without its line breaks; alike on all ranks.
std::string explained(const std::vector<DeviceCommunicator>& comms) {
  std::string first;
  for (const DeviceCommunicator& comm : comms) {
    const auto text = comm.explain({.collective = Collective::kAllReduce,
                                    .count = std::size_t{1} << 28,
                                    .type = DataType::kFloat32});
    REQUIRE(text);
    if (first.empty()) first = *text;
    CHECK(*text == first);
  }
  return std::regex_replace(first, std::regex("\\s+"), " ");
}

const std::vector<int> kAll{0, 1, 2, 3, 4, 5, 6, 7};

/// Two ranks on each of several hosts, as far as they know, each with the topology that is named
/// for it.
struct HostsCluster {
  explicit HostsCluster(const std::vector<std::string>& topologies) {
    const auto rendezvous = memory_rendezvous();
    const std::size_t ranks = 2 * topologies.size();
    std::vector<std::optional<Result<DeviceCommunicator>>> made(ranks);
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          Settings settings = settings_with(topologies[rank / 2]);
          settings.transport = "tcp";
          settings.groups = {2};
          const int device = static_cast<int>(rank);
          made[rank].emplace(DeviceCommunicator::create(*rendezvous, Rank{device},
                                                        static_cast<int>(ranks), device, settings));
        });
      }
    }
    for (auto& one : made) {
      errors.push_back(*one ? "" : one->error().to_string());
      if (*one) comms.push_back(*std::move(*one));
    }
  }

  /// What describe() says of the topology; alike on all ranks.
  std::string line() const {
    std::string first;
    for (const DeviceCommunicator& comm : comms) {
      const std::string text = comm.describe();
      const std::size_t at = text.find("\nplans ") + 1;
      const std::string line = text.substr(at, text.find('\n', at) - at);
      if (first.empty()) first = line;
      CHECK(line == first);
    }
    return first;
  }

  std::vector<DeviceCommunicator> comms;
  std::vector<std::string> errors;
};

/// A pcie-8 with a slower link between its sockets.
std::string other_text() {
  auto graph = topology::model("pcie-8");
  REQUIRE(graph);
  for (topology::Link& link : graph->links) {
    if (link.kind == topology::LinkKind::kSocket) link.forward.value = link.backward.value = 1;
  }
  return topology::print(*graph);
}

TEST_CASE("hosts that are alike but for their names and numbers tell one topology") {
  auto graph = topology::model("pcie-8");
  REQUIRE(graph);
  const File first(topology::print(*graph), "_a");
  for (topology::Node& node : graph->nodes) {
    if (node.name.starts_with("host0")) node.name.replace(0, 5, "node9");
    node.facts["serial"] = "1234";
  }
  graph->notes = {"of another driver"};
  const File second(topology::print(*graph), "_b");
  const HostsCluster cluster({first.path(), second.path(), first.path()});
  REQUIRE(cluster.comms.size() == 6);
  has(cluster.line(), "plans by: topology of " + first.path() + " (3 alike); between hosts: ");
  has(explained(cluster.comms), "from: topology of " + first.path() + " (3 alike)");
}

TEST_CASE("hosts that differ, and one of which nothing is known") {
  const File first(text_of("pcie-8"), "_a");
  const File second(other_text(), "_b");
  const HostsCluster cluster({first.path(), second.path(), second.path()});
  REQUIRE(cluster.comms.size() == 6);
  has(cluster.line(), "plans by: topology of 2 kinds of hosts: " + first.path() + ", " +
                          second.path() + " (2 alike)");
  has(explained(cluster.comms), "from: topology of 2 kinds of hosts: ");

  const HostsCluster partly({first.path(), "off", second.path()});
  REQUIRE(partly.comms.size() == 6);
  has(partly.line(), "plans without the host's topology: ");
  has(partly.line(), ": TUTTI_TOPOLOGY=off");
  CHECK(explained(partly.comms).find("from:") == std::string::npos);

  const HostsCluster elsewhere({first.path(), ""});  // The devices are not really here.
  REQUIRE(elsewhere.comms.size() == 4);
  has(elsewhere.line(), "plans without the host's topology: topology of 2 kinds of hosts: ");
  has(elsewhere.line(), "host1 has no GPU at ");

  const File rack(text_of("gb200-nvl72"), "_rack");
  const HostsCluster racks({rack.path(), rack.path()});
  REQUIRE(racks.comms.size() == 4);
  has(racks.line(), "plans without the host's topology: " + rack.path() +
                        ": it names none of its 18 hosts, and ranks are on 2");
}

TEST_CASE("a file of all hosts is taken, and says what joins them") {
  auto graph = topology::model("pcie-8:3");
  REQUIRE(graph);
  for (topology::Node& node : graph->nodes) {  // Only the third host has the devices of rank 4.
    if (node.name.ends_with("/gpu4") && node.name != "host2/gpu4") node.bus = "0000:ee:00.0";
  }
  const File all(topology::print(*graph), "_all"), one(text_of("pcie-8"), "_one");
  HostsCluster cluster({all.path(), all.path(), all.path()});
  REQUIRE(cluster.comms.size() == 6);
  has(cluster.line(),
      "plans by: topology of " + all.path() + " (3 of its hosts); between hosts: as it says");
  std::filesystem::remove(all.path());
  std::vector<std::string> lines(6);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 6; ++rank) {
      threads.emplace_back([&, rank] {  // A part of each host.
        auto part = cluster.comms[rank].split(static_cast<int>(rank / 2), 0);
        lines[rank] = part ? part->describe() : part.error().to_string();
      });
    }
  }
  for (const std::string& line : lines) has(line, "plans by: topology of " + all.path() + "\n");

  const File again(text_of("pcie-8:3"), "_all");
  const HostsCluster mixed({again.path(), again.path(), one.path()});
  REQUIRE(mixed.comms.size() == 6);
  has(mixed.line(), "one has 3 hosts in it; each needs its own");
}

TEST_CASE("a host finds itself in a file by its name") {
  auto graph = topology::model("pcie-8:2");
  REQUIRE(graph);
  char name[64] = {};
  gethostname(name, sizeof(name) - 1);
  graph->nodes[graph->find("host0").value].facts["hostname"] = "elsewhere";
  graph->nodes[graph->find("host1").value].facts["hostname"] = name;
  const File second(topology::print(*graph), "_b");
  const DeviceCluster one({0, 1}, settings_with(second.path()));
  REQUIRE(one.complaint.empty());
  has(one.comms[0].describe(), "plans by: topology of " + second.path() + "\n");
  const HostsCluster two({second.path(), second.path()});  // Both have the name.
  REQUIRE(two.comms.size() == 4);
  has(two.line(), "plans without the host's topology: topology of " + second.path() +
                      " (2 of its hosts): two hosts of the ranks are its host1");
  graph->nodes[graph->find("host1").value].facts["hostname"] = "nowhere";
  const File other(topology::print(*graph), "_c");
  const DeviceCluster none({0, 1}, settings_with(other.path()));
  REQUIRE(none.complaint.empty());
  has(none.comms[0].describe(),
      "plans without the host's topology: " + other.path() + ": it has no host called " + name);
}

TEST_CASE("a file that one of several hosts cannot read is an error on all ranks") {
  const File file(text_of("pcie-8"));
  const HostsCluster cluster({file.path(), "/nowhere"});
  REQUIRE(cluster.comms.empty());
  for (const std::string& error : cluster.errors)
    has(error, "TUTTI_TOPOLOGY=/nowhere: it can't be read");
  has(cluster.errors[0], "rank 2");
}

TEST_CASE("parts of several hosts' ranks have the topology of their hosts") {
  const std::string text = text_of("pcie-8");
  const File first(text, "_a"), second(text, "_b"), third(text, "_c");
  HostsCluster cluster({first.path(), second.path(), third.path()});
  REQUIRE(cluster.comms.size() == 6);
  for (const File* file : {&first, &second, &third}) std::filesystem::remove(file->path());
  const auto split = [&](const std::function<int(int)>& color) {
    std::vector<std::string> lines(6);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < 6; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<std::size_t>(rank);
        auto part = cluster.comms[at].split(color(rank), 0);
        lines[at] = part ? part->describe() : part.error().to_string();
      });
    }
    threads.clear();
    return lines;
  };
  // As all is on one host, two ranks of a part are taken to be on one host.
  const auto hosts = split([](int rank) { return rank / 2; });
  has(hosts[1], "plans by: topology of " + first.path() + "\n");
  has(hosts[3], "plans by: topology of " + second.path() + "\n");
  const auto across = split([](int rank) { return rank % 2; });
  has(across[0], "plans by: topology of " + first.path() + " (2 alike)");
  has(across[5], "plans by: topology of " + first.path() + " (2 alike)");
}

TEST_CASE("the graph of the host decides which plan is taken") {
  REQUIRE(kOnPcie);
  const File file(text_of("pcie-8"));
  const DeviceCluster by_file(kAll, settings_with(file.path()));
  REQUIRE(by_file.complaint.empty());
  has(by_file.comms[3].describe(), "plans by: topology of " + file.path() + "\n");
  // What the table says of it: "estimated 3.4 times as long".
  const auto two_shot = [](const std::string& text) {
    return text.substr(text.find("estimated", text.find(" two_shot ")), 27);
  };
  std::string text = explained(by_file.comms);
  has(text, "from: topology of ");
  has(text, "Taken: halving_doubling");
  has(two_shot(text), "times as long");

  const DeviceCluster without(kAll, settings_with("off"));
  REQUIRE(without.complaint.empty());
  has(without.comms[3].describe(), "plans without the host's topology: TUTTI_TOPOLOGY=off\n");
  text = explained(without.comms);
  CHECK(text.find("from:") == std::string::npos);
  INFO(two_shot(text));
  CHECK(two_shot(text).find("times as long") == std::string::npos);  // Taken, or as fast.
}

TEST_CASE("where the graph has not all devices, plans are chosen without it, and that is said") {
  const DeviceCluster probed({0, 1, 2}, settings_with(""));  // They are not really here.
  REQUIRE(probed.complaint.empty());
  has(probed.comms[1].describe(), "plans without the host's topology: topology of ");
  has(probed.comms[1].describe(), " (probe): ");

  const File other(text_of("gb200-nvl72"));
  const DeviceCluster elsewhere({0, 1}, settings_with(other.path()));
  REQUIRE(elsewhere.complaint.empty());
  has(elsewhere.comms[0].describe(), ": it names none of its 18 hosts, and ranks are on 1\n");
  CHECK(explained(elsewhere.comms).find("from:") == std::string::npos);

  const DeviceCluster one({0}, settings_with("/nowhere"));  // Nothing is read for it.
  REQUIRE(one.complaint.empty());
  has(one.comms[0].describe(), "plans without the host's topology: there is one device\n");
}

TEST_CASE("a file that cannot be used is an error that says so") {
  for (const bool there : {false, true}) {
    const File file("<topology version=\"2.0\"/>");
    const DeviceCluster cluster({0, 1}, settings_with(there ? file.path() : "/nowhere"));
    has(cluster.complaint, there ? "TUTTI_TOPOLOGY=" + file.path() + ": "
                                 : "TUTTI_TOPOLOGY=/nowhere: it can't be read");
    if (there) has(cluster.complaint, "tutti topo export");
  }
}

TEST_CASE("a part of a communicator has its topology") {
  const File file(text_of("pcie-8"));
  DeviceCluster cluster({0, 1, 2, 3}, settings_with(file.path()));
  REQUIRE(cluster.complaint.empty());
  std::filesystem::remove(file.path());
  CHECK(test::each(cluster, [&](std::size_t rank) -> std::string {
          auto part = cluster.comms[rank].split(static_cast<int>(rank % 2), 0);
          if (!part) return part.error().to_string();
          const std::string text = part->describe();
          return text.find("plans by: topology of " + file.path()) == std::string::npos ? text : "";
        }) == "");
}

}  // namespace
}  // namespace tutti
