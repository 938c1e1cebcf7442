// File: topology/probe/net.cc: ports of network devices, from /sys/class/net and
// /sys/class/infiniband. Interfaces without a device (loopback, bridges, containers' own) are not
// ports.
#include <fmt/format.h>

#include "topology/probe/parts.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr int kMostMbps = 100'000'000;
constexpr int kMostGids = 256, kMostGidFacts = 16;

void set(Port& port, const std::string& key, std::string value) {
  if (!value.empty()) port.facts[key] = std::move(value);
}

// The deepest PCI function that a class's device lies in; "" for a virtual one.
std::string function_of(const FileTree& files, const std::string& path) {
  const auto real = files.real_path(path + "/device");
  if (!real) return {};
  const auto buses = buses_on(*real);
  return buses.empty() ? "" : buses.back();
}

// "4: ACTIVE" is "ACTIVE".
std::string state_word(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

// How good a GID is to address a RoCE peer by: an IPv4 one of version 2 is routed as its address
// is, an IPv6 one likewise, one of the link reaches this link only. 0: version 1, which switches of
// networks do not know, or not RoCE at all.
int worth_of(std::string_view gid, std::string_view type) {
  if (type != "RoCE v2") return 0;
  if (gid.starts_with("0000:0000:0000:0000:0000:ffff:")) return 3;
  return gid.starts_with("fe80:") ? 1 : 2;
}

// The table's entries as facts, and "roce_gid": the index of the best for RoCE, first of equals.
void read_gids(const FileTree& files, const std::string& base, Port& port) {
  int said = 0, best = 0;
  for (int i = 0; i < kMostGids; ++i) {
    const auto gid = files.read(fmt::format("{}/gids/{}", base, i));
    if (!gid) break;
    if (gid->find_first_of("123456789abcdef") == std::string::npos) continue;
    // fe80:: and nothing behind it is the table's empty entry too.
    std::string text = gid->substr(0, gid->find('\n'));
    if (text == "fe80:0000:0000:0000:0000:0000:0000:0000") continue;
    const std::string type = files.text(fmt::format("{}/gid_attrs/types/{}", base, i));
    const std::string device = files.text(fmt::format("{}/gid_attrs/ndevs/{}", base, i));
    if (const int worth = worth_of(text, type); worth > best) {
      best = worth;
      set(port, "roce_gid", std::to_string(i));
    }
    if (++said > kMostGidFacts) continue;
    if (!type.empty()) text += " " + type;
    if (!device.empty()) text += " " + device;
    set(port, fmt::format("gid{}", i), text);
  }
}

// What only the library knows.
void add_verbs(const VerbsFacts& verbs, const std::string& device, const std::string& number,
               Port& port) {
  const auto bytes = [](int value) { return value > 0 ? std::to_string(value) : std::string(); };
  for (const VerbsDevice& known : verbs.devices) {
    if (known.name != device) continue;
    set(port, "rdma_atomics", known.atomics);
    set(port, "dma_buf", known.dma_buf);
    for (const VerbsPort& each : known.ports) {
      if (std::to_string(each.number) != number) continue;
      set(port, "active_mtu", bytes(each.active_mtu));
      set(port, "maximum_mtu", bytes(each.maximum_mtu));
    }
  }
}

Port infiniband_port(const FileTree& files, const std::string& device, const std::string& number,
                     bool only) {
  const std::string base = "/sys/class/infiniband/" + device;
  const std::string own = base + "/ports/" + number;
  Port port;
  port.name = only ? device : device + ":" + number;
  const std::string state = state_word(files.text(own + "/state"));
  port.active = state == "ACTIVE";
  port.mbps = parse_infiniband_rate(files.text(own + "/rate"));
  set(port, "state", state);
  set(port, "phys_state", state_word(files.text(own + "/phys_state")));
  set(port, "link_layer", files.text(own + "/link_layer"));
  set(port, "rate", files.text(own + "/rate"));
  set(port, "lid", files.text(own + "/lid"));
  set(port, "port", number);
  set(port, "guid", files.text(base + "/node_guid"));
  set(port, "sys_image_guid", files.text(base + "/sys_image_guid"));
  set(port, "firmware", files.text(base + "/fw_ver"));
  set(port, "board", files.text(base + "/board_id"));
  read_gids(files, own, port);
  return port;
}

Port network_port(const FileTree& files, const std::string& name) {
  const std::string base = "/sys/class/net/" + name;
  Port port;
  port.name = name;
  // -1 where the interface is down or virtual.
  const auto speed = parse_integer(files.text(base + "/speed"));
  if (speed && *speed > 0 && *speed <= kMostMbps) port.mbps = static_cast<int>(*speed);
  const std::string state = files.text(base + "/operstate");
  port.active = state == "up";
  set(port, "state", state);
  set(port, "mtu", files.text(base + "/mtu"));
  set(port, "netdev", name);
  return port;
}

}  // namespace

std::map<std::string, std::vector<Port>> probe_ports(Probe& probe) {
  const FileTree& files = probe.files;
  std::map<std::string, std::vector<Port>> ports;
  for (const std::string& device : files.list("/sys/class/infiniband")) {
    const std::string function = function_of(files, "/sys/class/infiniband/" + device);
    const std::string parent = files.text("/sys/class/infiniband/" + device + "/parent");
    if (function.empty() && parent.empty()) {
      probe.graph().notes.push_back("left out " + device + ": it is on no PCI device");
      continue;
    }
    const auto numbers = files.list("/sys/class/infiniband/" + device + "/ports");
    for (const std::string& number : numbers) {
      Port port = infiniband_port(files, device, number, numbers.size() == 1);
      if (probe.answers.verbs) add_verbs(*probe.answers.verbs, device, number, port);
      set(port, "software_over", parent);  // rxe and siw: the interface that they send by.
      ports[function].push_back(std::move(port));
    }
  }
  int left_out = 0;
  for (const std::string& name : files.list("/sys/class/net")) {
    if (!files.real_path("/sys/class/net/" + name + "/operstate") &&
        !files.real_path("/sys/class/net/" + name + "/device")) {
      continue;  // Not an interface: "bonding_masters".
    }
    const std::string function = function_of(files, "/sys/class/net/" + name);
    if (function.empty()) {
      ++left_out;
      continue;
    }
    Port port = network_port(files, name);
    auto& known = ports[function];
    const bool infiniband = !known.empty() && known[0].facts.count("guid") != 0;
    if (!infiniband) {
      known.push_back(std::move(port));
      continue;
    }
    // The interface of an InfiniBand or RoCE device: dev_port says of which port, from 0.
    const auto number = parse_integer(files.text("/sys/class/net/" + name + "/dev_port"));
    const std::size_t at = number && *number > 0 && static_cast<std::size_t>(*number) < known.size()
                               ? static_cast<std::size_t>(*number)
                               : 0;
    if (known[at].facts.count("netdev") != 0) continue;
    set(known[at], "netdev", name);
    set(known[at], "mtu", port.facts["mtu"]);
    if (known[at].mbps == 0) known[at].mbps = port.mbps;
  }
  if (left_out > 0) {
    probe.graph().notes.push_back(fmt::format("left out {} virtual network interfaces", left_out));
  }
  return ports;
}

}  // namespace tutti::topology
