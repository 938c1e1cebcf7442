// Ranks take the RDMA devices that are near their GPU or their CPUs: as a pure function, and of the
// files of made-up machines.
#include <fmt/format.h>

#include <algorithm>

#include "support/catch.h"
#include "support/net/fake_rdma.h"
#include "support/topology/topology_tree.h"
#include "topology/probe/nic_paths.h"
#include "topology/probe/probe.h"
#include "transport/verbs/ports.h"
#include "tutti/communicator.h"

using namespace tutti;
using namespace tutti::verbs;
using Catch::Contains;

namespace {

std::vector<Port> ports_named(const std::vector<std::string>& names) {
  std::vector<Port> ports;
  for (const std::string& name : names) {
    Port port;
    port.device = name;
    port.active = true;
    port.speed_mbps = 400000;
    port.gids.emplace_back().version_2 = true;
    ports.push_back(port);
  }
  return ports;
}

/// Distances by rank and port.
std::vector<std::vector<NicPath>> paths_of(const std::vector<std::vector<int>>& distances) {
  std::vector<std::vector<NicPath>> paths;
  for (const auto& row : distances) {
    auto& of_rank = paths.emplace_back();
    for (const int distance : row) of_rank.push_back({distance, "so far"});
  }
  return paths;
}

/// "0*12": rails, with a star before the rank's own.
std::string rails(std::span<const Port> ports, const PortPreference& preference) {
  const auto choice = choose_ports(ports, preference);
  if (!choice) return choice.error().what;
  std::string names;
  for (std::size_t i = 0; i < choice->rails.size(); ++i)
    names += (i == choice->first ? "*" : "") + choice->rails[i].port.device;
  return names;
}

/// Those of each rank of a host.
std::vector<std::string> all_rails(std::span<const Port> ports,
                                   const std::vector<std::vector<NicPath>>& paths,
                                   std::string_view rule = {}) {
  std::vector<std::string> all;
  const int ranks = static_cast<int>(paths.size());
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(rails(ports, {.rule = rule, .turn = rank, .sharers = ranks, .paths = paths}));
  return all;
}

using Names = std::vector<std::string>;

/// A host with two sockets, and on each root port a switch with a GPU and some NICs.
class Host {
 public:
  explicit Host(const Names& cpus = {"0-3", "4-7"}) {
    for (std::size_t node = 0; node < 2; ++node) {
      const std::string at = fmt::format("/sys/devices/system/node/node{}/", node);
      tree_.add_file(at + "cpulist", cpus[node] + "\n");
      tree_.add_file(at + "distance", node == 0 ? "10 21\n" : "21 10\n");
    }
  }
  /// Returns the GPU's address.
  std::string add_switch(int numa, const Names& nics, bool with_gpu = true) {
    const int base = 0x10 * ++switches_;
    const std::string up = fmt::format(
        "/sys/devices/pci0000:{0:02x}/0000:{0:02x}:01.0/0000:{1:02x}:00.0", base, base + 1);
    add(up.substr(0, up.rfind('/')), "0x060400", "0x8086", numa);
    add(up, "0x060400", "0x1000", numa);
    const auto below = [&](int port, std::string_view type, std::string_view vendor) {
      const std::string down = fmt::format("{}/0000:{:02x}:{:02x}.0", up, base + 2, port);
      add(down, "0x060400", "0x1000", numa);
      const std::string bus = fmt::format("0000:{:02x}:00.0", base + 3 + port);
      add(down + "/" + bus, type, vendor, numa);
      return down + "/" + bus;
    };
    int port = 0;
    std::string gpu;
    if (with_gpu) gpu = below(port++, "0x030200", "0x10de");
    for (const std::string& nic : nics) add_nic(nic, below(port++, "0x020700", "0x15b3"));
    return gpu.substr(gpu.rfind('/') + 1);
  }
  void add_software(const std::string& name) {
    add_port(name);
    tree_.add_file("/sys/class/infiniband/" + name + "/parent", "eth0\n");
  }

  /// What the probes find below a folder with these files.
  struct Found {
    std::vector<Port> ports;
    topology::Graph graph;
    std::vector<std::vector<NicPath>> paths(std::span<const topology::Place> places) const {
      Names names;
      for (const Port& port : ports) names.push_back(name_of(port));
      return topology::nic_paths(graph, places, names);
    }
  };
  const topology::FileTree& files() const { return tree_; }
  Found probe() const {
    const topology::TempDir root;
    topology::write_out(tree_, root.path);
    return {probe_ports(root.path), topology::probe_tree(*topology::disk_tree(root.path)).graph};
  }

 private:
  void add(const std::string& path, std::string_view type, std::string_view vendor, int numa) {
    tree_.add_file(path + "/class", fmt::format("{}\n", type));
    tree_.add_file(path + "/vendor", fmt::format("{}\n", vendor));
    tree_.add_file(path + "/numa_node", fmt::format("{}\n", numa));
    tree_.add_file(path + "/max_link_speed", "32.0 GT/s PCIe\n");
    tree_.add_file(path + "/max_link_width", "16\n");
    tree_.add_link("/sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1),
                   "../../.." + path.substr(4));
  }
  void add_nic(const std::string& name, const std::string& path) {
    add_port(name);
    tree_.add_link("/sys/class/infiniband/" + name + "/device", "../../.." + path.substr(4));
  }
  void add_port(const std::string& name) {
    const std::string at = "/sys/class/infiniband/" + name + "/ports/1/";
    tree_.add_file(at + "link_layer", "InfiniBand\n");
    tree_.add_file(at + "state", "4: ACTIVE\n");
    tree_.add_file(at + "rate", "400 Gb/sec (4X NDR)\n");
    tree_.add_file(at + "gids/0", "fe80:0000:0000:0000:0202:c9ff:fe01:0203\n");
    const std::string file = fmt::format("uverbs{}", nics_++);
    tree_.add_file("/sys/class/infiniband_verbs/" + file + "/ibdev", name + "\n");
    tree_.add_file("/dev/infiniband/" + file, "");
  }

  topology::MemoryTree tree_;
  int switches_ = 0, nics_ = 0;
};

CpuSet cpus(std::uint64_t bits) {
  CpuSet set{};
  set[0] = bits;
  return set;
}

}  // namespace

TEST_CASE("eight rails whose names run against the GPUs: each rank takes the one at its GPU") {
  const auto ports = ports_named({"0", "1", "2", "3", "4", "5", "6", "7"});
  std::vector<std::vector<int>> distances(8, std::vector<int>(8));
  for (int rank = 0; rank < 8; ++rank) {
    for (int port = 0; port < 8; ++port) {
      const bool same_socket = (rank < 4) == (port >= 4);
      distances[static_cast<std::size_t>(rank)][static_cast<std::size_t>(port)] = port == 7 - rank
                                                                                      ? 4
                                                                                  : same_socket ? 8
                                                                                                : 9;
    }
  }
  // And to go on by one of the same socket, which no other rank has for that.
  CHECK(all_rails(ports, paths_of(distances)) ==
        Names{"4*7", "*67", "*56", "*45", "0*3", "*23", "*12", "*01"});
  CHECK(all_rails(ports, paths_of(distances))[0] != rails(ports, {.turn = 0, .sharers = 8}));
  // A rank alone has all, its own first.
  CHECK(rails(ports, {.paths = paths_of({distances[2]})}) == "01234*567");
  const auto choice = choose_ports(ports, {.paths = paths_of({distances[2]})});
  CHECK_THAT(choice->why, Contains(", first 5:1: so far"));
  CHECK(choice->rails[choice->first].near == "so far");
}

TEST_CASE("ranks with the same nearest ports share them out, whatever others do") {
  const auto ports = ports_named({"0", "1", "2", "3"});
  const std::vector<int> left{8, 8, 9, 9}, right{9, 9, 8, 8};
  CHECK(all_rails(ports, paths_of({left, left, right, right})) ==
        Names{"*01", "0*1", "*23", "2*3"});
  // Ranks alternate between the sockets; by turn alone rank 1 would have a port of the other one.
  CHECK(all_rails(ports, paths_of({left, right, left, right})) ==
        Names{"*01", "*23", "0*1", "2*3"});
  CHECK(all_rails(ports, paths_of({right, left})) == Names{"*23", "*01"});
  CHECK(all_rails(ports, paths_of({right, right, right})) == Names{"*23", "2*3", "*23"});
}

TEST_CASE(
    "ports that are equally near, or as near as anybody knows, go by turn as they are named") {
  for (std::size_t count = 1; count <= 9; ++count) {
    Names names;
    for (std::size_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
    const auto ports = ports_named(names);
    for (std::size_t sharers = 1; sharers <= 10; ++sharers) {
      const auto alike = paths_of(std::vector(sharers, std::vector<int>(count, 7)));
      for (std::size_t turn = 0; turn < sharers; ++turn) {
        const std::size_t own = (count > sharers ? turn * count / sharers : turn) % count;
        const std::size_t share = std::max<std::size_t>((count + sharers - 1) / sharers, 2);
        const std::size_t taken = std::min({share, count, kMostRails});
        std::string expected;
        for (std::size_t i = 0; i < count; ++i) {
          if ((i + count - own) % count < taken) expected += (i == own ? "*" : "") + names[i];
        }
        PortPreference preference{.turn = static_cast<int>(turn),
                                  .sharers = static_cast<int>(sharers)};
        CHECK(rails(ports, preference) == expected);
        preference.paths = alike;
        CHECK(rails(ports, preference) == expected);
      }
    }
  }
}

TEST_CASE("a user's order of devices comes before how near they are") {
  const auto ports = ports_named({"a0", "a1", "b0", "b1"});
  const auto paths = paths_of({{9, 9, 9, 1}, {1, 9, 9, 9}});
  CHECK(all_rails(ports, paths) == Names{"a0*b1", "*a0a1"});
  CHECK(all_rails(ports, paths, "b0,a0,b1") == Names{"*b0a0", "*a0b1"});
  // Which of them one word means, and what is left of an exclusion, says no order.
  CHECK(all_rails(ports, paths, "*") == Names{"a0*b1", "*a0a1"});
  CHECK(all_rails(ports, paths, "^a1") == Names{"a0*b1", "*a0b0"});
  CHECK(all_rails(ports, paths, "a*") == Names{"*a0a1", "*a0a1"});
}

TEST_CASE("a rank that may use some ports alone takes the nearest of these, in its turn of all") {
  const auto ports = ports_named({"0", "1", "2", "3"});
  const auto paths = paths_of({{9, 9, 8, 8}, {8, 8, 9, 9}, {9, 9, 8, 8}});
  const Names only{"2:1", "3:1"};
  CHECK(rails(ports, {.turn = 0, .sharers = 3, .paths = paths, .only = only}) == "*23");
  CHECK(rails(ports, {.turn = 2, .sharers = 3, .paths = paths, .only = only}) == "2*3");
  const Names none{"9:1"};
  CHECK_THAT(rails(ports, {.only = none}), Contains("none of the ports near the device"));
}

TEST_CASE("reversed rails are read from sysfs, and ranks at GPUs and at CPUs find the near ones") {
  Host host;
  std::vector<topology::Place> gpus;
  for (int i = 0; i < 8; ++i)
    gpus.push_back({host.add_switch(i / 4, {fmt::format("mlx5_{}", 7 - i)}), {}});
  const auto found = host.probe();
  REQUIRE(found.ports.size() == 8);
  const auto paths = found.paths(gpus);
  CHECK(all_rails(found.ports, paths) == Names{"mlx5_4*mlx5_7", "*mlx5_6mlx5_7", "*mlx5_5mlx5_6",
                                               "*mlx5_4mlx5_5", "mlx5_0*mlx5_3", "*mlx5_2mlx5_3",
                                               "*mlx5_1mlx5_2", "*mlx5_0mlx5_1"});
  CHECK(paths[0][7].words == "PIX from GPU " + gpus[0].gpu + " (at most one PCIe switch between)");
  CHECK(paths[0][4].words == "PHB from GPU " + gpus[0].gpu + " (through a CPU)");
  CHECK(paths[0][0].words == "SYS from GPU " + gpus[0].gpu + " (from one NUMA node to another)");
  // CPUs of either socket, of both, and some that nobody knows.
  const auto by_cpus = found.paths(
      std::vector<topology::Place>{{"", cpus(0x01)}, {"", cpus(0x20)}, {"", cpus(0xff)}, {}});
  CHECK(by_cpus[0][7].words == "NUMA node 0, as the rank's CPUs");
  CHECK(by_cpus[0][0].words == "NUMA node 1, the rank's CPUs are on 0");
  CHECK(by_cpus[0][0].distance > by_cpus[0][7].distance);
  CHECK(by_cpus[1][0].distance < by_cpus[1][7].distance);
  CHECK(by_cpus[2][0].distance == by_cpus[2][7].distance);
  CHECK(by_cpus[3] == std::vector<NicPath>(8));
  CHECK(rails(found.ports, {.sharers = 2, .paths = {by_cpus[0], by_cpus[1]}}) ==
        "*mlx5_4mlx5_5mlx5_6mlx5_7");
}

TEST_CASE("two sockets with two cards each, and devices that are on no bus") {
  Host host;
  const std::string right = host.add_switch(1, {"mlx5_0", "mlx5_1"});
  const std::string left = host.add_switch(0, {"mlx5_2"});
  (void)host.add_switch(0, {"mlx5_3"}, false);
  host.add_software("rxe0");
  const auto found = host.probe();
  REQUIRE(found.ports.size() == 5);
  const auto paths = found.paths(
      std::vector<topology::Place>{{left, {}}, {right, {}}, {right, {}}, {"0000:77:00.0", {}}});
  // rxe0 is first by name, but the farthest of all.
  CHECK(all_rails(found.ports, {paths[0], paths[1], paths[2]}) ==
        Names{"*mlx5_2mlx5_3", "*mlx5_0mlx5_1", "mlx5_0*mlx5_1"});
  CHECK(paths[0][0].words.empty());
  for (std::size_t card = 1; card < 5; ++card)
    CHECK(paths[0][0].distance > paths[0][card].distance);
  CHECK(paths[3] == std::vector<NicPath>(5));  // A GPU that sysfs does not show.
}

TEST_CASE("a communicator says which devices each rank goes by") {
  use_library(test::FakeRdma::library());
  use_ports(test::FakeRdma::ports());
  // All CPUs of this process are on one node, and a device there is the last by name.
  Host host({"0-1023", "1024-2047"});
  (void)host.add_switch(1, {"fake0", "fake1"});
  (void)host.add_switch(0, {"fake2"});
  topology::use_files(&host.files());
  Settings settings;
  settings.transport = "verbs";
  settings.timeout = std::chrono::seconds(20);
  const auto comms = Communicator::in_process(2, settings);
  REQUIRE(comms);
  topology::use_files(nullptr);
  // Both have the near one first, and to go on by one each.
  CHECK_THAT((*comms)[0].describe(),
             Contains("\nshort messages by fake2:1, NUMA node 0, as the rank's CPUs\n"
                      "long messages by fake0:1, fake2:1\n"));
  CHECK_THAT((*comms)[1].describe(), Contains("\nshort messages by fake2:1, NUMA node 0"));
}
