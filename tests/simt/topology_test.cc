// Communicators of devices take the graph of their host from a file, or from what is there: what
// they choose by it, and what they say where there is none (cuda/comm/host_graph.h).
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "topology/graph/text.h"
#include "topology/models/model.h"

namespace tutti {
namespace {

using test::DeviceCluster;

// Before anything asks for it.
const bool kOnPcie = setenv("SIMT_MACHINE", "pcie-8", 1) == 0;

/// A file that goes with the test.
class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::temp_directory_path() /
              ("tutti_topology_test_" + std::to_string(getpid()) + ".topo")) {
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

/// What is said of an all-reduce of 1 GiB; alike on all ranks.
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
  return first;
}

const std::vector<int> kAll{0, 1, 2, 3, 4, 5, 6, 7};

TEST_CASE("the graph of the host decides which plan is taken") {
  REQUIRE(kOnPcie);
  const File file(text_of("pcie-8"));
  const DeviceCluster by_file(kAll, settings_with(file.path()));
  REQUIRE(by_file.complaint.empty());
  has(by_file.comms[3].describe(), "plans by: topology of " + file.path() + "\n");
  std::string text = explained(by_file.comms);
  has(text, "from: topology of ");
  has(text, "Taken: halving_doubling");

  const DeviceCluster without(kAll, settings_with("off"));
  REQUIRE(without.complaint.empty());
  has(without.comms[3].describe(), "plans without the host's topology: TUTTI_TOPOLOGY=off\n");
  text = explained(without.comms);
  CHECK(text.find("from:") == std::string::npos);
  has(text, "Taken: two_shot");
}

TEST_CASE("where the graph has not all devices, plans are chosen without it, and that is said") {
  const DeviceCluster probed({0, 1, 2}, settings_with(""));  // They are not really here.
  REQUIRE(probed.complaint.empty());
  has(probed.comms[1].describe(), "plans without the host's topology: topology of ");
  has(probed.comms[1].describe(), " (probe): ");

  const File other(text_of("gb200-nvl72"));
  const DeviceCluster elsewhere({0, 1}, settings_with(other.path()));
  REQUIRE(elsewhere.complaint.empty());
  has(elsewhere.comms[0].describe(), "plans without the host's topology: topology of ");
  CHECK(explained(elsewhere.comms).find("from:") == std::string::npos);

  const DeviceCluster one({0}, settings_with("/nowhere"));  // Nothing is read for it.
  REQUIRE(one.complaint.empty());
  has(one.comms[0].describe(), "plans without the host's topology: there is one device\n");
}

TEST_CASE("a file that cannot be used is an error that says so") {
  for (const bool there : {false, true}) {
    const File file("<system version=\"1\"/>");
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
