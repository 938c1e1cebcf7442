// File: topology/checks/nic.cc: NICs against others of their make, and against their own PCI
// Express link.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "topology/checks/parts.h"

namespace tutti::topology {
namespace {

constexpr long long kMostMbps = 3'200'000;  // No port is faster; files get units wrong.

// The PCI device that a NIC is a port or a function of: "host0/0000:17:00", or its card.
std::string device_of(const Machine& machine, NodeId nic) {
  const Graph& graph = machine.graph;
  const NodeId parent = machine.parent[nic.value];
  const bool on_card = parent.exists() && graph[parent].kind == NodeKind::kCard;
  const Node& node = on_card ? graph[parent] : graph[nic];
  if (node.bus.empty()) return node.name;
  const std::string host = node.host.exists() ? graph[node.host].name : "";
  return host + "/" + node.bus.substr(0, node.bus.rfind('.'));
}

// What NICs are compared within: a make and a link layer. "" where the make is not known.
std::string make_of(const Machine& machine, NodeId nic) {
  const Graph& graph = machine.graph;
  const NodeId parent = machine.parent[nic.value];
  std::string make = likeness(graph[nic]);
  if (make.empty() && parent.exists()) make = likeness(graph[parent]);
  return make.empty() ? make : make + " " + fact(graph[nic], "link_layer");
}

// Lanes of a port: 4 of "400 Gb/sec (4X NDR)"; 0 if not known.
int lanes_of(const Node& nic) {
  const std::string& rate = fact(nic, "rate");
  const std::size_t at = rate.find("X ");
  if (at == std::string::npos || at == 0) return 0;
  std::size_t first = at;
  while (first > 0 && rate[first - 1] >= '0' && rate[first - 1] <= '9' && at - first < 3) --first;
  int lanes = 0;
  for (std::size_t i = first; i < at; ++i) lanes = lanes * 10 + (rate[i] - '0');
  return lanes;
}

// Megabits a second; 0 if not known.
long long speed_of(const Node& nic) { return number_fact(nic, "speed_mbps").value_or(0); }

// The NIC with the most of something, for each make; only those that are up.
template <class Value>
std::map<std::string, NodeId> best_of(const Machine& machine, Value value) {
  std::map<std::string, NodeId> best;
  for (const NodeId nic : machine.graph.all(NodeKind::kNic)) {
    const std::string make = make_of(machine, nic);
    if (make.empty() || !is_up(machine.graph[nic])) continue;
    NodeId& at = best.emplace(make, nic).first->second;
    if (value(machine.graph[nic]) > value(machine.graph[at])) at = nic;
  }
  return best;
}

bool has_ipv4(const Node& nic) {
  for (const auto& [key, value] : nic.facts) {
    if (key.rfind("gid", 0) != 0) continue;
    if (value.rfind("0000:0000:0000:0000:0000:ffff:", 0) == 0) return true;
  }
  return false;
}

}  // namespace

void check_nic_state(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  std::map<std::string, int> up_of_make, up_of_device;
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    if (!is_up(graph[nic])) continue;
    ++up_of_make[make_of(machine, nic)];
    ++up_of_device[device_of(machine, nic)];
  }
  for (const auto& host : machine.hosts) {
    const bool some_up = std::any_of(host.nics.begin(), host.nics.end(),
                                     [&](NodeId nic) { return is_up(graph[nic]); });
    for (const NodeId nic : host.nics) {
      const Node& node = graph[nic];
      if (is_up(node)) continue;
      const std::string make = make_of(machine, nic);
      // A second port that nobody cabled is usual; one of several like it that is down is not.
      const bool spare = up_of_device[device_of(machine, nic)] > 0;
      // Ethernet ports on a board are often left alone; RDMA devices are bought to be used.
      const bool rdma = !fact(node, "guid").empty();
      const bool odd = rdma && !spare && !make.empty() && up_of_make[make] > 0;
      const Severity severity = odd       ? Severity::kError
                                : some_up ? Severity::kNote
                                          : Severity::kWarning;
      const std::string& physical = fact(node, "phys_state");
      findings.push_back({severity, "nic-down", node.name,
                          odd ? "the NIC's port is not active, and those of others of its make are"
                              : "the NIC's port is not active",
                          fmt::format("state {}{}{} (kernel)", fact(node, "state"),
                                      physical.empty() ? "" : ", physical ", physical),
                          fact(node, "state") == "no driver"
                              ? "load its driver, if it is to be used: lspci -k names it"
                              : "look at cable and switch; INIT means that no subnet manager has "
                                "seen it",
                          severity == Severity::kNote ? 0.0 : 1.0});
    }
  }
}

void check_nic_rate(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto best = best_of(
      machine, [](const Node& nic) { return speed_of(nic) > kMostMbps ? 0 : speed_of(nic); });
  std::map<std::tuple<NodeId, std::string, long long>, int> equals;  // By host, make and speed.
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const Node& node = graph[nic];
    if (is_up(node)) ++equals[{node.host, make_of(machine, nic), speed_of(node)}];
  }
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const Node& node = graph[nic];
    if (speed_of(node) > kMostMbps) {
      findings.push_back({Severity::kWarning, "nic-speed-implausible", node.name,
                          "no port is as fast as this one is said to be",
                          fmt::format("{} Gb/s", static_cast<double>(speed_of(node)) / 1000),
                          "correct the file: speeds are megabits a second"});
      continue;
    }
    const auto found = best.find(make_of(machine, nic));
    if (found == best.end() || !is_up(node)) continue;
    const Node& other = graph[found->second];
    const long long own = speed_of(node), most = speed_of(other);
    if (own <= 0 || own >= most) continue;
    const bool narrow = lanes_of(node) > 0 && lanes_of(node) < lanes_of(other);
    // Two and more that are slower alike are a network of their own: of storage, of the front end.
    const int alike = equals[{node.host, found->first, own}];
    const bool own_network = !narrow && alike > 1;
    const std::string& rate = fact(node, "rate");
    findings.push_back(
        {narrow        ? Severity::kError
         : own_network ? Severity::kNote
                       : Severity::kWarning,
         narrow ? "nic-width" : "nic-slow", node.name,
         narrow ? fmt::format("the port has {} of {} lanes up", lanes_of(node), lanes_of(other))
         : own_network
             ? fmt::format("{} ports are slower than those of other NICs of their make, all alike",
                           alike)
             : "the port is slower than that of another NIC of its make",
         fmt::format("{} Gb/s{}{}, {} has {} Gb/s", static_cast<double>(own) / 1000,
                     rate.empty() ? "" : ", ", rate, other.name, static_cast<double>(most) / 1000),
         own_network ? "if they are no network of their own: look at cables and switch"
                     : "look at cable, transceiver and the switch's port",
         own_network ? 0 : loss_of(static_cast<double>(own), static_cast<double>(most))});
  }
}

void check_nic_mtu(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto mtu_of = [](const Node& nic) { return number_fact(nic, "mtu").value_or(0); };
  const auto best = best_of(machine, mtu_of);
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const Node& node = graph[nic];
    const auto found = best.find(make_of(machine, nic));
    if (found == best.end() || !is_up(node)) continue;
    const long long own = mtu_of(node), most = mtu_of(graph[found->second]);
    if (own <= 0 || own >= most) continue;
    findings.push_back(
        {Severity::kWarning, "nic-mtu", node.name,
         "the MTU is smaller than that of another NIC of its make",
         fmt::format("{} bytes, {} has {}", own, graph[found->second].name, most),
         fmt::format("ip link set DEVICE mtu {}, with the name of its interface", most)});
  }
}

void check_nic_firmware(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  std::map<std::string, std::map<std::string, int>> times;  // Firmware versions, by make.
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const std::string make = make_of(machine, nic), &firmware = fact(graph[nic], "firmware");
    if (!make.empty() && !firmware.empty()) ++times[make][firmware];
  }
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const std::string& firmware = fact(graph[nic], "firmware");
    const auto known = times.find(make_of(machine, nic));
    if (known == times.end() || firmware.empty()) continue;
    const auto usual = std::max_element(known->second.begin(), known->second.end(),
                                        [](auto& a, auto& b) { return a.second < b.second; });
    if (known->second[firmware] == usual->second) continue;  // The usual one, or one of two halves.
    findings.push_back(
        {Severity::kWarning, "nic-firmware", graph[nic].name,
         "the NIC has other firmware than most of its make",
         fmt::format("{} (kernel), {} others have {}", firmware, usual->second, usual->first),
         "bring all NICs to one version (mlxfwmanager); defaults of congestion "
         "control and known errors differ between versions"});
  }
}

void check_nic_pcie(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  struct Device {
    NodeId first;
    int ports = 0;
    double needs = 0, has = 0;  // GB/s.
    std::string rate, origin;
  };
  std::map<std::string, Device> devices;
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const Link* link = machine.pcie_above(nic);
    if (link == nullptr || !link->forward.known() || !is_up(graph[nic])) continue;
    if (speed_of(graph[nic]) > kMostMbps) continue;
    Device& device = devices[device_of(machine, nic)];
    if (device.ports++ == 0) device.first = nic;
    device.needs += static_cast<double>(speed_of(graph[nic])) / 8000;
    // Functions of one device share the link, each as a link of the graph.
    if (link->forward.value < device.has) continue;
    device.has = link->forward.value;
    device.rate =
        link->pcie && link->pcie->maximum.known() ? " of " + text_of(link->pcie->maximum) : "";
    device.origin = to_string(link->forward.origin);
  }
  for (const auto& [name, device] : devices) {
    // Vendors pair 400 Gb/s with Gen5 x16, of which 48 of 50 GB/s are payload: not worth a word.
    if (device.has >= device.needs * 0.9 || device.has <= 0) continue;
    findings.push_back(
        {Severity::kWarning, "nic-pcie-narrow", graph[device.first].name,
         device.ports > 1
             ? fmt::format("{} ports share a PCI Express link too narrow for them", device.ports)
             : std::string("the NIC's PCI Express link is narrower than its port"),
         fmt::format("{:.1f} GB/s of ports, {:.1f} GB/s ({}){}", device.needs, device.has,
                     device.origin, device.rate),
         "use a wider slot, or count on the lesser rate", loss_of(device.has, device.needs)});
  }
}

void check_nic_address(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto best = best_of(machine, [](const Node& nic) { return has_ipv4(nic) ? 1 : 0; });
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const Node& node = graph[nic];
    // Only RoCE needs an address of the network for its GIDs.
    if (fact(node, "link_layer") != "Ethernet" || !is_up(node) || has_ipv4(node)) continue;
    const auto found = best.find(make_of(machine, nic));
    const bool others = found != best.end() && has_ipv4(graph[found->second]);
    bool routable = false;
    for (const auto& [key, value] : node.facts) {
      routable |= key.rfind("gid", 0) == 0 && value.rfind("fe80:", 0) != 0;
    }
    if (!others && routable) continue;
    findings.push_back({others ? Severity::kWarning : Severity::kNote, "nic-no-address", node.name,
                        others ? "the NIC has no IPv4 GID, and others of its make have"
                               : "the NIC has no GID that can be routed",
                        "GIDs of the kernel's table, by their form",
                        "give its interface an IP address", others ? 1.0 : 0.0});
  }
}

}  // namespace tutti::topology
