// Communicators of devices on several hosts, as far as they know, whose slots network cards read
// and write in the devices' memory (cuda/comm/gpudirect.h). The cards are those of
// support/net/fake_rdma.h: what they write into a device is only seen there after a flush, where
// the device says so.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "cuda/comm/gpudirect.h"
#include "simt/communicator/device_communicators.h"
#include "simt/runtime.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/net/fake_rdma.h"
#include "support/processes.h"
#include "topology/graph/text.h"
#include "topology/probe/probe.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::FakeRdma;

/// Before anybody looks at this machine's own devices.
const bool kPretended = [] {
  verbs::use_library(FakeRdma::library());
  verbs::use_ports(FakeRdma::ports());
  return true;
}();

int device_of(const void* at) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) return -1;
  return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
}

void flush(int device) { FakeRdma::the().flush(device); }

/// While it lives, what cards write into devices is seen after a flush alone.
class Unordered {
 public:
  Unordered() {
    simt::settings().rdma_unordered = true;
    simt::set_flush(flush);
    FakeRdma::the().devices({.of = device_of, .late = ~std::uint64_t{0}});
  }
  ~Unordered() {
    simt::settings().rdma_unordered = false;
    simt::set_flush(nullptr);
    FakeRdma::the().devices({});
  }
  Unordered(const Unordered&) = delete;
  Unordered& operator=(const Unordered&) = delete;
};

/// While it lives, devices' memory is of these kinds for cards.
class Kinds {
 public:
  explicit Kinds(FakeRdma::Devices kinds) {
    kinds.of = device_of;
    FakeRdma::the().devices(kinds);
  }
  ~Kinds() { FakeRdma::the().devices({}); }
  Kinds(const Kinds&) = delete;
  Kinds& operator=(const Kinds&) = delete;
};

/// A machine's files: which root complexes simulated devices 0 and 1 are below, and cards.
class Machine {
 public:
  Machine(const std::string& device_0, const std::string& device_1, const std::string& card,
          const std::string& card_1 = "", const std::string& card_2 = "") {
    add(device_0 + "/0000:10:00.0", "0x030200");
    add(device_1 + "/0000:11:00.0", "0x030200");
    add_card("fake0", card + "/0000:17:00.0");
    if (!card_1.empty()) add_card("fake1", card_1 + "/0000:18:00.0");
    if (!card_2.empty()) add_card("fake2", card_2 + "/0000:19:00.0");
    topology::use_files(&files_);
  }
  ~Machine() { topology::use_files(nullptr); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

 private:
  void add(const std::string& place, const std::string& type) {
    files_.add_file("/sys/devices/" + place + "/class", type);
    files_.add_file("/sys/devices/" + place + "/vendor", "0x10de");
    files_.add_link("/sys/bus/pci/devices" + place.substr(place.rfind('/')),
                    "/sys/devices/" + place);
  }
  void add_card(const std::string& name, const std::string& place) {
    add(place, "0x020700");
    files_.add_file("/sys/class/infiniband/" + name + "/ports/1/state", "4: ACTIVE");
    files_.add_link("/sys/class/infiniband/" + name + "/device", "/sys/devices/" + place);
  }
  topology::MemoryTree files_;
};

Settings verbs_settings(const std::string& gpudirect, int ranks_of_a_host = 1) {
  Settings settings = test::small_settings();
  settings.transport = "verbs";
  settings.rdma_devices = "fake0";
  settings.gpudirect = gpudirect;
  settings.timeout = std::chrono::seconds(20);
  if (ranks_of_a_host > 1) settings.groups = {ranks_of_a_host};
  return settings;
}

/// Where slots to other hosts are, by the first rank; or why there is no communicator.
std::string slots_of(const Settings& settings) {
  const DeviceCluster cluster({0, 1}, settings);
  if (!cluster.complaint.empty()) return cluster.complaint;
  const std::string text = cluster.comms[0].describe(), key = "slots to other hosts: ";
  const auto at = text.find(key);
  if (at == std::string::npos) return "nothing of it in: " + text;
  // All ranks say the same.
  const std::string line = text.substr(at, text.find('\n', at) - at);
  if (cluster.comms[1].describe().find(line) == std::string::npos) return "ranks differ";
  return line.substr(key.size());
}

const std::string kGpuDirect = "in device memory (GPUDirect over fake0:1)";

/// Everything once, and what is wrong.
std::string run_all(DeviceCluster& cluster, std::mt19937_64& random) {
  if (!cluster.complaint.empty()) return cluster.complaint;
  for (int i = 0; i < kCollectiveCount; ++i) {
    test::Case one;
    one.collective = static_cast<Collective>(i);
    one.ranks = static_cast<int>(cluster.comms.size());
    for (const std::size_t count : {1, 333, 5000}) {
      one.type = test::any_type(random);
      one.op = static_cast<ReduceOp>(random() % 6);
      one.count = count;
      one.root = static_cast<int>(random() % static_cast<unsigned>(one.ranks));
      one.in_place = random() % 2 == 0;
      if (auto wrong = run_in_group(cluster.comms, cluster.streams, one, random()); !wrong.empty())
        return wrong;
    }
  }
  return "";
}

TEST_CASE("every collective has its bits with slots in devices' memory") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  test::shuffle_threads(seed);
  FakeRdma::the().seed(seed);
  for (const bool unordered : {false, true}) {
    std::optional<Unordered> devices;
    if (unordered) devices.emplace();
    for (const int ranks_of_a_host : {1, 2}) {
      Settings settings = verbs_settings("on", ranks_of_a_host);
      settings.rdma_devices = ranks_of_a_host == 1 ? "fake*" : "fake0";
      DeviceCluster cluster({0, 1, 1, 2}, settings);
      REQUIRE(cluster.complaint == "");
      CHECK(cluster.comms[0].describe().find("in device memory (GPUDirect over fake0") !=
            std::string::npos);
      CHECK(run_all(cluster, random) == "");
    }
  }
  CHECK(FakeRdma::the().complaint() == "");
}

TEST_CASE("messages and a part of all ranks have slots in devices' memory too") {
  const Unordered devices;
  DeviceCluster cluster({0, 1, 2}, verbs_settings("on"));
  REQUIRE(cluster.complaint == "");
  std::vector<std::string> wrong(3);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        auto part = cluster.comms[rank].split(rank == 2 ? 1 : 0, 0);
        if (!part) {
          wrong[rank] = part.error().to_string();
          return;
        }
        const bool alone = rank == 2;
        const bool apart = part->describe().find(kGpuDirect) != std::string::npos;
        if (apart == alone) wrong[rank] = part->describe();
        wrong[rank] += test::exchange_messages(cluster.comms[rank], cluster.streams[rank]);
        wrong[rank] += test::exchange_messages(*part, cluster.streams[rank]);
      });
    }
  }
  CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("rings to other hosts are in the device's memory, and only counters in the host's") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Settings settings = verbs_settings("off");
  settings.lanes = 4;
  settings.slot_count = 4;
  settings.slot_bytes = kMiB / 4;
  const auto bytes = [&] { return DeviceCluster({0, 1}, settings).comms[0].device_bytes(); };
  const std::size_t without = bytes();
  settings.gpudirect = "on";
  // A ring of 4 MiB each way, and what it takes to begin at a page of the device.
  CHECK(bytes() - without == 8 * kMiB + (64 << 10));
  const DeviceCluster cluster({0, 1}, settings);
  CHECK_THAT(cluster.comms[0].describe(),
             Catch::Contains("host memory for rings between them: 0.0"));
}

TEST_CASE("where slots are, and why, is one answer of all ranks") {
  CHECK(slots_of(verbs_settings("on")) == kGpuDirect);
  CHECK(slots_of(verbs_settings("off")) == "in pinned memory: TUTTI_GPUDIRECT=off");
  CHECK_THAT(slots_of(verbs_settings("auto")),
             Catch::Contains("rank 0: sysfs does not say where GPU 0000:10:00.0 is connected") &&
                 Catch::Contains("(TUTTI_GPUDIRECT=on takes it)"));
  Settings tcp = verbs_settings("auto");
  tcp.transport = "tcp";
  CHECK(slots_of(tcp) == "in pinned memory: tcp gives no card access to devices");
  tcp.gpudirect = "on";
  CHECK_THAT(slots_of(tcp), Catch::Contains("TUTTI_GPUDIRECT=on: tcp gives no card access"));
}

TEST_CASE("auto takes cards that are below the device's root complex, for all ranks or none") {
  {
    const Machine near("pci0000:10", "pci0000:10/0000:10:01.0", "pci0000:10/0000:16:00.0");
    CHECK(slots_of(verbs_settings("auto")) == kGpuDirect);
  }
  {
    const Machine far("pci0000:10", "pci0000:11", "pci0000:10");
    CHECK_THAT(slots_of(verbs_settings("auto")),
               Catch::StartsWith("in pinned memory: rank 1: GPU 0000:11:00.0 is below pci0000:11, "
                                 "fake0:1 below pci0000:10"));
    CHECK(slots_of(verbs_settings("on")) == kGpuDirect);
  }
  const Machine software("pci0000:10", "pci0000:10", "virtual/net");
  CHECK_THAT(slots_of(verbs_settings("auto")), Catch::Contains("fake0:1 is no PCI device"));
}

TEST_CASE("each rank takes the cards that are near its device") {
  const Machine machine("pci0000:10", "pci0000:11", "pci0000:30", "pci0000:11", "pci0000:10");
  for (const std::string gpudirect : {"auto", "on"}) {
    Settings settings = verbs_settings(gpudirect);
    settings.rdma_devices = "";
    DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    CHECK_THAT(cluster.comms[0].describe(), Catch::Contains("(GPUDirect over fake2:1)"));
    CHECK_THAT(cluster.comms[1].describe(), Catch::Contains("(GPUDirect over fake1:1)"));
    std::mt19937_64 random(3);
    CHECK(run_all(cluster, random) == "");
    // Ranks that ask for other cards get those: none is near.
    settings.rdma_devices = "fake0";
    CHECK_THAT(slots_of(settings),
               Catch::StartsWith(gpudirect == "on" ? kGpuDirect : "in pinned memory: rank 0: GPU"));
  }
}

TEST_CASE("in pinned memory, too, slots go by the card at the device, whatever it is called") {
  const std::string left = "pci0000:10/0000:10:01.0", right = "pci0000:11/0000:11:01.0";
  const Machine machine(left, right, right, "pci0000:30", left);
  Settings settings = verbs_settings("off");
  settings.rdma_devices = "";
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  CHECK_THAT(cluster.comms[0].describe(),
             Catch::Contains("\nslots to other hosts: in pinned memory: TUTTI_GPUDIRECT=off\n"
                             "short messages by fake2:1, PIX from GPU 0000:10:00.0 (at most one "
                             "PCIe switch between)\nlong messages by fake0:1, fake2:1\n"));
  CHECK_THAT(cluster.comms[1].describe(),
             Catch::Contains("short messages by fake0:1, PIX from GPU 0000:11:00.0") &&
                 Catch::Contains("long messages by fake0:1, fake1:1\n"));
  std::mt19937_64 random(5);
  CHECK(run_all(cluster, random) == "");
  CHECK_THAT(cluster.comms[0].describe(),
             Catch::Contains(": 0 1, to other hosts by fake0:1 and fake2:1\n"));
  settings.rdma_devices = "fake1,fake0,fake2";  // A user's order is kept.
  const DeviceCluster named({0, 1}, settings);
  CHECK_THAT(named.comms[0].describe(), Catch::Contains("short messages by fake1:1, PHB from GPU"));
}

TEST_CASE("where the machine hides which card is at which device, a file of NCCL tells it") {
  const Machine flat("pci0000:10", "pci0000:11", "pci0000:30", "pci0000:31", "pci0000:32");
  const test::ScratchDirectory files;
  const auto firsts = [&](const std::string& left, const std::string& right) {
    const auto leaf = [](const std::string& bus, const char* type) {
      return "<pci busid=\"" + bus + "\" class=\"" + type +
             "\" link_speed=\"16 GT/s\" link_width=\"16\"/>";
    };
    Settings settings = verbs_settings("off");
    settings.rdma_devices = "";
    settings.topology = files.path() + "/cloud.xml";
    std::ofstream(settings.topology)
        << R"(<system version="1"><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400">)"
        << leaf("0000:10:00.0", "0x030200") << leaf(left, "0x020700")
        << R"(</pci><pci busid="ffff:ff:02.0" class="0x060400">)"
        << leaf("0000:11:00.0", "0x030200") << leaf(right, "0x020700") << "</pci></cpu></system>";
    const DeviceCluster cluster({0, 1}, settings);
    std::string text = cluster.complaint;
    for (const DeviceCommunicator& comm : cluster.comms) {
      const std::string said = comm.describe();
      text += said.substr(std::min(said.find("short messages by"), said.size()), 44) + ";";
    }
    return text;
  };
  CHECK(
      firsts("0000:19:00.0", "0000:18:00.0") ==
      "short messages by fake2:1, PIX from GPU 0000;short messages by fake1:1, PIX from GPU 0000;");
  CHECK(
      firsts("0000:17:00.0", "0000:19:00.0") ==
      "short messages by fake0:1, PIX from GPU 0000;short messages by fake2:1, PIX from GPU 0000;");
}

TEST_CASE("memory that a card does not take is told, and an error where it has to be taken") {
  const Machine near("pci0000:10", "pci0000:10", "pci0000:10");
  const Kinds kinds({.unknown = 1 << 1});  // Memory of device 1, which is rank 1's.
  const std::string why =
      "rank 1: verbs: fake0:1: registering 64 KiB of a GPU's memory: by address";
  CHECK_THAT(slots_of(verbs_settings("auto")), Catch::StartsWith("in pinned memory: " + why));
  const auto made = DeviceCommunicator::in_process(std::array{0, 1}, verbs_settings("on"));
  REQUIRE(!made);
  CHECK_THAT(made.error().what,
             Catch::StartsWith("rank 1: TUTTI_GPUDIRECT=on: verbs: fake0:1: registering"));
  // A dma-buf does where there is one; where it is refused the address may.
  simt::settings().dma_buf = true;
  const int before = FakeRdma::the().dma_bufs();
  CHECK(slots_of(verbs_settings("auto")) == kGpuDirect);
  CHECK(FakeRdma::the().dma_bufs() == before + 4);  // To try, and for good.
  {
    const Kinds others({.no_dma_buf = ~std::uint64_t{0}});
    CHECK(slots_of(verbs_settings("on")) == kGpuDirect);
    CHECK(FakeRdma::the().dma_bufs() == before + 4);
  }
  {
    const Kinds none({.unknown = 1, .no_dma_buf = 1});
    CHECK_THAT(slots_of(verbs_settings("auto")),
               Catch::Contains("rank 0: verbs: fake0:1: registering 64 KiB of a GPU's memory: by "
                               "dma-buf: ") &&
                   Catch::Contains(", by address: "));
  }
  simt::settings().dma_buf = false;
}

TEST_CASE("without the memory of devices all goes as before") {
  const Machine near("pci0000:10", "pci0000:10", "pci0000:10");
  const Kinds kinds({.unknown = 2});
  DeviceCluster cluster({0, 1}, verbs_settings("auto"));
  std::mt19937_64 random(7);
  CHECK(run_all(cluster, random) == "");
}

TEST_CASE(
    "a device that orders nothing and can't be flushed keeps its slots in the host's memory") {
  const Machine near("pci0000:10", "pci0000:10", "pci0000:10");
  const Unordered devices;
  CHECK(slots_of(verbs_settings("auto")) == kGpuDirect);
  simt::settings().rdma_flush = false;
  CHECK_THAT(slots_of(verbs_settings("auto")), Catch::Contains("has no flush from the host"));
  CHECK_THAT(slots_of(verbs_settings("on")),
             Catch::Contains("TUTTI_GPUDIRECT=on: device 0 does not order"));
  simt::settings().rdma_flush = true;
}

/// By estimate, of an all-reduce of 1 GiB.
double estimate_us(const DeviceCluster& cluster) {
  const auto text = cluster.comms[1].explain({.collective = Collective::kAllReduce,
                                              .count = std::size_t{1} << 28,
                                              .type = DataType::kFloat32});
  REQUIRE(text);
  const std::string key = "Taken: ";
  const std::size_t at = text->find(": ", text->find(key) + key.size()) + 2;
  return std::stod(text->substr(at));
}

TEST_CASE("plans between hosts are chosen by the NICs of their topology") {
  // The way from a NIC to the memory of the host is slow, that to a device is not.
  topology::Graph graph;
  const auto host = graph.add({topology::NodeKind::kHost, "host0"});
  const auto add = [&](topology::NodeKind kind, const char* name, const char* bus,
                       topology::NodeId to, topology::LinkKind link, double gbs) {
    const auto node = graph.add({kind, name, host, 0, bus});
    if (to.exists()) graph.join(link, to, node, {gbs, topology::Origin::kMeasured});
    return node;
  };
  using topology::LinkKind, topology::NodeKind;
  const auto numa = add(NodeKind::kNuma, "host0/numa0", "", {}, LinkKind::kPcie, 0);
  const auto middle =
      add(NodeKind::kPcieSwitch, "host0/switch", "0000:0f:00.0", numa, LinkKind::kPcie, 2);
  add(NodeKind::kGpu, "host0/gpu0", "0000:10:00.0", middle, LinkKind::kPcie, 24);
  add(NodeKind::kGpu, "host0/gpu1", "0000:11:00.0", middle, LinkKind::kPcie, 24);
  const auto nic = add(NodeKind::kNic, "host0/fake0", "0000:17:00.0", middle, LinkKind::kPcie, 24);
  const auto plane = graph.add({NodeKind::kPlane, "network"});
  graph.join(LinkKind::kPort, nic, plane, {12.5, topology::Origin::kMeasured});
  const auto path = std::filesystem::temp_directory_path() /
                    ("tutti_gpudirect_test_" + std::to_string(getpid()) + ".topo");
  std::ofstream(path) << topology::print(graph);

  double us[2] = {};
  for (const bool on : {false, true}) {
    Settings settings = verbs_settings(on ? "on" : "off");
    settings.topology = path;
    // The usual slots: small ones are waited for, however fast the way is.
    settings.slot_bytes = settings.slot_count = settings.lanes = 0;
    const DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    const std::string text = cluster.comms[0].describe();
    INFO(text);
    CHECK(text.find("plans by: topology of " + path.string() +
                    " (2 alike); between hosts: 1 rail\n") != std::string::npos);
    us[on ? 1 : 0] = estimate_us(cluster);
  }
  std::filesystem::remove(path);
  CHECK(us[1] >= 1.07e9 / 12.5e3);
  CHECK(us[1] < 1.2 * 1.07e9 / 12.5e3);
  CHECK(us[0] > 4 * us[1]);  // At 2 GB/s, and less: kernels take what is in the host's memory.
}

}  // namespace
}  // namespace tutti
