// Which port of which RDMA device is used, from made-up machines: below a folder of files like
// sysfs, and as facts.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/processes.h"
#include "transport/verbs/ports.h"

using namespace tutti;
using namespace tutti::verbs;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// A folder that looks like a machine's /sys and /dev.
class Machine {
 public:
  void write(const std::string& path, const std::string& text) const {
    const fs::path file = root() + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void device(const std::string& name, const std::string& file) const {
    write("/sys/class/infiniband_verbs/" + file + "/ibdev", name);
    write("/dev/infiniband/" + file, "");
  }
  void port(const std::string& device, int number, const std::string& layer,
            const std::string& state, const std::string& rate) const {
    const std::string at = port_path(device, number);
    write(at + "link_layer", layer);
    write(at + "state", state);
    write(at + "rate", rate);
  }
  void gid(const std::string& device, int number, int index, const std::string& gid,
           const std::string& type, const std::string& interface) const {
    const std::string at = port_path(device, number), name = std::to_string(index);
    write(at + "gids/" + name, gid);
    if (!type.empty()) write(at + "gid_attrs/types/" + name, type);
    if (!interface.empty()) write(at + "gid_attrs/ndevs/" + name, interface);
  }
  const std::string& root() const { return root_.path(); }

 private:
  static std::string port_path(const std::string& device, int number) {
    return "/sys/class/infiniband/" + device + "/ports/" + std::to_string(number) + "/";
  }
  test::ScratchDirectory root_;
};

constexpr const char* kLocal = "fe80:0000:0000:0000:0202:c9ff:fe01:0203";
constexpr const char* kIpv4 = "0000:0000:0000:0000:0000:ffff:0a00:0003";
constexpr const char* kIpv6 = "fd00:0000:0000:0000:0000:0000:0000:0003";
constexpr const char* kEmpty = "0000:0000:0000:0000:0000:0000:0000:0000";

Gid gid_of(std::uint8_t last) { return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}; }

Port port(const std::string& device, int speed_mbps, LinkLayer layer = kRoce) {
  const auto last = static_cast<std::uint8_t>(device.back());
  return {.device = device,
          .layer = layer,
          .active = true,
          .speed_mbps = speed_mbps,
          .gids = {{.index = 3, .gid = gid_of(last), .version_2 = true, .interface = "eth0"}}};
}

std::string chosen(const std::vector<Port>& ports, const PortPreference& preference = {}) {
  const auto choice = choose_ports(ports, preference);
  return choice ? name_of(choice->rails[choice->first].port) : choice.error().what;
}

}  // namespace

TEST_CASE("ports are read from sysfs, with the addresses that they can be used by") {
  const Machine machine;
  CHECK(probe_ports(machine.root()).empty());
  machine.device("mlx5_10", "uverbs1");
  machine.port("mlx5_10", 1, "InfiniBand", "4: ACTIVE", "400 Gb/sec (4X NDR)");
  machine.gid("mlx5_10", 1, 0, kLocal, "IB/RoCE v1", "");
  machine.device("mlx5_2", "uverbs0");
  machine.port("mlx5_2", 1, "Ethernet", "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
  machine.gid("mlx5_2", 1, 0, kLocal, "IB/RoCE v1", "eth2");
  machine.gid("mlx5_2", 1, 1, kLocal, "RoCE v2", "eth2");
  machine.gid("mlx5_2", 1, 2, kEmpty, "", "");
  machine.gid("mlx5_2", 1, 3, kIpv6, "RoCE v2", "eth2");
  machine.gid("mlx5_2", 1, 4, kIpv4, "IB/RoCE v1", "eth2");
  machine.gid("mlx5_2", 1, 5, kIpv4, "RoCE v2", "eth2");
  machine.port("mlx5_2", 2, "Ethernet", "1: DOWN", "100 Gb/sec (4X EDR)");
  const auto ports = probe_ports(machine.root());
  REQUIRE(ports.size() == 3);
  CHECK(ports[0].device == "mlx5_2");  // 2 is before 10.
  CHECK(ports[0].layer == kRoce);
  CHECK(ports[0].speed_mbps == 2000);
  CHECK(ports[0].gids.size() == 5);
  CHECK(ports[1].number == 2);
  CHECK(!ports[1].active);
  CHECK(ports[2].layer == kInfiniBand);
  CHECK(ports[2].speed_mbps == 400000);
  CHECK(usable_layers(ports) == (kInfiniBand | kRoce));
  CHECK(chosen(ports) == "mlx5_10:1");  // InfiniBand first, where all have it.
  const auto roce = choose_ports(ports, {.layers = kRoce});
  REQUIRE(roce);
  CHECK(roce->rails[0].gid.index == 5);
  CHECK_THAT(roce->why, Contains("mlx5_2:1 (RoCE v2, 2 Gbit/s), GID 5: 10.0.0.3; not mlx5_2:2 (not "
                                 "active), mlx5_10:1 (other ranks have none of its kind)"));
}

TEST_CASE("of several addresses the one that goes furthest is taken, and none of RoCE v1") {
  Port one = port("rxe0", 10000);
  const auto index = [&one](std::vector<std::pair<const char*, bool>> gids) {
    one.gids.clear();
    for (const auto& [text, version_2] : gids) {
      const Machine machine;
      machine.device("d", "uverbs0");
      machine.port("d", 1, "Ethernet", "4: ACTIVE", "10 Gb/sec");
      machine.gid("d", 1, 0, text, version_2 ? "RoCE v2" : "IB/RoCE v1", "eth0");
      auto read = probe_ports(machine.root()).front().gids.front();
      read.index = static_cast<int>(one.gids.size());
      one.gids.push_back(read);
    }
    const auto choice = choose_ports(std::span(&one, 1), {});
    return choice ? choice->rails[0].gid.index : -1;
  };
  CHECK(index({{kLocal, true}, {kIpv6, true}, {kIpv4, true}}) == 2);
  CHECK(index({{kLocal, true}, {kIpv6, true}, {kIpv4, false}}) == 1);
  CHECK(index({{kLocal, true}}) == 0);
  CHECK(index({{kIpv4, false}}) == -1);
  CHECK(usable_layers(std::span(&one, 1)) == 0);
}

TEST_CASE("a user may name the index of the address") {
  std::vector<Port> ports{port("mlx5_0", 100000), port("mlx5_1", 100000), port("slow", 1000)};
  for (Port& one : ports) {
    const auto last = static_cast<std::uint8_t>(one.gids[0].gid.back() + 100);
    one.gids.push_back({.index = 5, .gid = gid_of(last), .version_2 = true, .interface = "eth0.7"});
    one.gids.push_back({.index = 7, .gid = gid_of(last), .version_2 = false, .interface = "eth0"});
  }
  const auto indices = [&](int index) {
    const auto choice = choose_ports(ports, {.gid_index = index});
    if (!choice) return choice.error().to_string();
    std::string text;
    for (const ChosenPort& rail : choice->rails) text += std::to_string(rail.gid.index);
    return text;
  };
  CHECK(indices(-1) == "33");
  CHECK(indices(5) == "55");
  CHECK_THAT(choose_ports(ports, {.gid_index = 5})->why,
             Contains("GID 5: 10.0.0.148") && Contains("by TUTTI_RDMA_GID_INDEX=5"));
  ports[1].gids.erase(ports[1].gids.begin() + 1);
  CHECK_THAT(indices(5), Contains("TUTTI_RDMA_GID_INDEX=5: mlx5_1:1 has no GID of RoCE v2 at that "
                                  "index; it has 3 (10.0.0.49, RoCE v2), 7 (10.0.0.149, RoCE v1)"));
  CHECK(choose_ports(ports, {.gid_index = 5}).error().code == Code::kInvalidArgument);
  CHECK_THAT(indices(7), Contains("mlx5_0:1 has no GID of RoCE v2 at that index"));
  // Ports that are not used anyway need none there; those of InfiniBand have no choice.
  CHECK(chosen(ports, {.rule = "^mlx5_1", .gid_index = 5}) == "mlx5_0:1");
  ports[1].active = false;
  CHECK(indices(5) == "5");
  const std::vector<Port> infiniband{port("ib0", 100000, kInfiniBand)};
  CHECK(chosen(infiniband, {.gid_index = 9}) == "ib0:1");
}

TEST_CASE("the fastest port is taken, equal ones in turn, and a rule decides before all that") {
  const std::vector<Port> ports{port("mlx5_0", 100000), port("mlx5_1", 200000),
                                port("mlx5_2", 200000), port("rxe0", 10000)};
  CHECK(chosen(ports) == "mlx5_1:1");
  CHECK(chosen(ports, {.turn = 1, .sharers = 3}) == "mlx5_2:1");
  CHECK(chosen(ports, {.turn = 2, .sharers = 3}) == "mlx5_1:1");
  CHECK(chosen(ports, {.rule = "rxe*"}) == "rxe0:1");
  CHECK(chosen(ports, {.rule = "rxe0,mlx5_2"}) == "rxe0:1");
  CHECK(chosen(ports, {.rule = "mlx5_0:1"}) == "mlx5_0:1");
  CHECK(chosen(ports, {.rule = "mlx5_0*:1"}) == "mlx5_0:1");
  CHECK_THAT(chosen(ports, {.rule = "mlx5_0*:2"}), Contains("not in TUTTI_RDMA_DEVICES"));
  CHECK(chosen(ports, {.rule = "^mlx5_1"}) == "mlx5_2:1");
  CHECK(chosen(ports, {.rule = "mlx5*,^mlx5_1,mlx5_2"}) == "mlx5_0:1");
  CHECK(chosen(ports, {.rule = "mlx5*", .turn = 1, .sharers = 2}) == "mlx5_2:1");
  CHECK_THAT(chosen(ports, {.rule = "mlx5_0:2"}),
             Contains("no port of an RDMA device can be used; there is mlx5_0:1 (not in "
                      "TUTTI_RDMA_DEVICES)") &&
                 Contains("TUTTI_TRANSPORT=tcp does without"));
}

TEST_CASE("ports as fast as the best one are rails, which the ranks of a host share out") {
  const auto rails = [](int count, const PortPreference& preference) {
    std::vector<Port> ports{port("slow", 1000)};
    for (int i = 0; i < count; ++i) ports.push_back(port(std::to_string(i), 100000));
    const auto choice = choose_ports(ports, preference);
    REQUIRE(choice);
    std::string names;
    for (std::size_t i = 0; i < choice->rails.size(); ++i)
      names += (i == choice->first ? "*" : "") + choice->rails[i].port.device;
    return names;
  };
  CHECK(rails(1, {}) == "*0");
  CHECK(rails(2, {}) == "*01");
  CHECK(rails(9, {}) == "*01234567");
  // Two ranks use both, each its own first: their peers have them in the same order.
  CHECK(rails(2, {.turn = 0, .sharers = 2}) == "*01");
  CHECK(rails(2, {.turn = 1, .sharers = 2}) == "0*1");
  CHECK(rails(2, {.turn = 5, .sharers = 6}) == "0*1");
  // One each, and its neighbour's to go on by.
  CHECK(rails(4, {.turn = 2, .sharers = 4}) == "*23");
  CHECK(rails(4, {.turn = 3, .sharers = 4}) == "0*3");
  CHECK(rails(8, {.turn = 1, .sharers = 2}) == "*4567");
  CHECK(rails(8, {.turn = 1, .sharers = 2, .most = 1}) == "*4");
  CHECK(rails(8, {.rule = "5,3,slow"}) == "*53");
}

TEST_CASE("why a port is not used is said") {
  CHECK_THAT(chosen({}), Contains("there is none at all"));
  Port down = port("a", 1000), locked = port("b", 1000), bare = port("c", 1000);
  down.active = false;
  locked.allowed = false;
  bare.gids.clear();
  const std::vector<Port> ports{down, locked, bare, port("d", 1000, kInfiniBand)};
  CHECK(usable_layers(std::span(ports).first(3)) == 0);
  CHECK_THAT(chosen(ports, {.layers = kRoce}),
             Contains("a:1 (not active), b:1 (no permission for its file in /dev/infiniband), c:1 "
                      "(no GID of RoCE v2: its interface has no address), d:1 (other ranks"));
}
