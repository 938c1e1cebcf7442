// File: topology/probe/pci.cc: the PCI tree of sysfs, so far as something of interest hangs off it.
//
// A device's real path names all bridges above it:
//   /sys/devices/pci0000:16/0000:16:00.0/0000:17:00.0/0000:18:04.0/0000:19:00.0
//                           root port    upstream     downstream   device
// What a bridge is, configuration space says; without privileges it is hidden, and the places tell:
// the first is a root port, and below it a switch's two sides alternate.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "topology/graph/words.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostFunctions = 20000;
constexpr std::size_t kMostDepth = 64;

struct Function {
  std::string bus;
  std::string path;                // Real, in sysfs.
  std::vector<std::string> above;  // Bridges, outermost first.
  NodeKind kind = NodeKind::kGpu;
};

// What kind of node a PCI function makes; none if it is of no interest.
std::optional<NodeKind> interest(const FileTree& files, const std::string& path, bool has_ports) {
  const auto whole = parse_integer(files.text(path + "/class"));
  if (!whole) return {};
  const std::int64_t type = *whole >> 8;
  const std::string vendor = files.text(path + "/vendor");
  if (type >> 8 == 0x02 || has_ports) return NodeKind::kNic;
  // Graphics of a board's management controller: ES1000 and Rage XL, of which AMD made many.
  const std::string device = files.text(path + "/device");
  if (vendor == "0x1002" && (device == "0x515e" || device == "0x4752")) return {};
  const bool nvidia = vendor == "0x10de", amd = vendor == "0x1002", intel = vendor == "0x8086";
  if ((type == 0x0300 || type == 0x0302) && (nvidia || amd)) return NodeKind::kGpu;
  if (type == 0x0380 && (amd || intel)) return NodeKind::kGpu;  // Data centre GPUs without VGA.
  if (type == 0x1200) return NodeKind::kGpu;
  if (type == 0x0680 && nvidia) return NodeKind::kNvSwitch;
  return {};
}

// What one end of a link says of it: the kernel's words, else configuration space.
Pcie read_rates(const FileTree& files, const std::string& path) {
  const auto read = [&](const std::string& which) {
    return PcieRate{parse_link_speed(files.text(path + "/" + which + "_link_speed")),
                    parse_link_width(files.text(path + "/" + which + "_link_width"))};
  };
  Pcie pcie{read("current"), read("max")};
  if (pcie.current.known() && pcie.maximum.known()) return pcie;
  const ConfigSpace config =
      parse_config_space(files.read(path + "/config").value_or(std::string()));
  if (!pcie.current.known()) pcie.current = config.current;
  if (!pcie.maximum.known()) pcie.maximum = config.maximum;
  return pcie;
}

// The lesser of what both ends can do, in speed and in width; an end that is silent does not limit.
PcieRate lesser(const PcieRate& a, const PcieRate& b) {
  const auto least = [](auto x, auto y) { return x <= 0 ? y : y <= 0 ? x : std::min(x, y); };
  return {least(a.gigatransfers, b.gigatransfers), least(a.width, b.width)};
}

void add_some(std::string& list, const std::string& item) {
  if (list.size() < 400) append(list, item);
}

class PciProbe {
 public:
  PciProbe(Probe& probe, const std::map<std::string, std::vector<Port>>& ports)
      : probe_(probe), ports_(ports) {}

  void run() {
    find_functions();
    name_gpus();
    int nvswitches = 0;
    for (const Function& function : functions_) {
      const NodeId parent = bridges(function);
      if (function.kind == NodeKind::kNic) {
        add_nic(function, parent);
      } else if (function.kind == NodeKind::kNvSwitch) {
        const NodeId node =
            probe_.add(NodeKind::kNvSwitch, fmt::format("nvswitch{}", nvswitches), nvswitches);
        ++nvswitches;
        attach(function, parent, node);
      } else {
        const auto [number, index] = gpu_numbers_.at(function.bus);
        attach(function, parent, probe_.add(NodeKind::kGpu, fmt::format("gpu{}", number), index));
      }
    }
    add_software_nics();
    say_what_is_hidden();
  }

 private:
  void find_functions() {
    const FileTree& files = probe_.files;
    const std::string base = "/sys/bus/pci/devices";
    int virtual_functions = 0;
    for (const std::string& name : files.list(base)) {
      const std::string bus = parse_bus(name);
      const auto real = files.real_path(base + "/" + name);
      if (bus.empty() || !real || functions_.size() == kMostFunctions) continue;
      const bool has_ports = ports_.count(bus) != 0;
      const auto kind = interest(files, *real, has_ports);
      if (!kind) continue;
      // A virtual function is a NIC of its own only where somebody uses it.
      if (!has_ports && files.real_path(*real + "/physfn")) {
        ++virtual_functions;
        continue;
      }
      Function function{bus, *real, buses_on(*real), *kind};
      if (!function.above.empty()) function.above.pop_back();
      if (function.above.size() > kMostDepth) continue;
      functions_.push_back(std::move(function));
    }
    std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) {
      return std::pair(a.bus.size(), a.bus) < std::pair(b.bus.size(), b.bus);
    });
    if (virtual_functions > 0) {
      probe_.graph().notes.push_back(
          fmt::format("left out {} unused virtual functions", virtual_functions));
    }
    if (!files.real_path(base)) {
      probe_.find(Severity::kNote, "pci-hidden", "host0", "there is no PCI tree in sysfs",
                  "run outside of the container, or with /sys mounted");
    }
  }

  // Drivers' numbers first; GPUs that no driver counts come after, by address.
  void name_gpus() {
    std::set<int> taken;
    const auto number = [&](const std::string& bus, int index) {
      if (bus.empty() || !taken.insert(index).second) return;
      gpu_numbers_[bus] = {index, index};
    };
    if (probe_.answers.nvml) {
      for (const NvmlGpu& gpu : probe_.answers.nvml->gpus) number(gpu.bus, gpu.index);
    }
    int next = 0;
    if (taken.empty()) {
      for (const std::string& bus : kfd_gpus(probe_.files)) number(bus, next++);
    }
    next = taken.empty() ? 0 : *taken.rbegin() + 1;
    for (const Function& function : functions_) {
      if (function.kind != NodeKind::kGpu || gpu_numbers_.count(function.bus) != 0) continue;
      gpu_numbers_[function.bus] = {next++, -1};
    }
  }

  NodeId bridges(const Function& function) {
    NodeId parent = numa_of(function);
    // The path is as long as the bridges and the device; each one's is a prefix of it.
    std::size_t end = function.path.size();
    std::vector<std::string> prefixes(function.above.size());
    for (std::size_t i = function.above.size(); i-- > 0;) {
      end = function.path.rfind('/', end - 1);
      prefixes[i] = function.path.substr(0, end);
    }
    for (std::size_t i = 0; i < function.above.size(); ++i) {
      const std::string& bus = function.above[i];
      const auto known = probe_.by_bus.find(bus);
      parent = known != probe_.by_bus.end() ? known->second
                                            : add_bridge(bus, prefixes[i], parent, i > 0);
    }
    if (function.above.empty()) add_some(flat_, function.bus);
    return parent;
  }

  NodeId add_bridge(const std::string& bus, const std::string& path, NodeId parent, bool below_up) {
    using Kind = ConfigSpace::Port;
    const ConfigSpace config =
        parse_config_space(probe_.files.read(path + "/config").value_or(std::string()));
    const NodeKind above = probe_.graph()[parent].kind;
    const bool is_switch = config.port == Kind::kUpstream ||
                           (config.port != Kind::kRoot && config.port != Kind::kDownstream &&
                            above == NodeKind::kPciePort && below_up);
    const NodeId node =
        probe_.add(is_switch ? NodeKind::kPcieSwitch : NodeKind::kPciePort, "pci" + bus);
    describe(node, bus, path);
    if (config.acs) probe_.fact(node, "acs", *config.acs ? "on" : "off");
    const std::string parent_path = paths_[probe_.graph()[parent].name];
    // A port of a root complex or of a switch is inside of that; else there is a cable or a slot.
    if (above == NodeKind::kPciePort) {
      link(parent, node, parent_path, path);
    } else {
      probe_.graph().join(LinkKind::kInternal, parent, node, kInside);
    }
    paths_[probe_.graph()[node].name] = path;
    probe_.by_bus[bus] = node;
    return node;
  }

  NodeId numa_of(const Function& function) {
    // The device's own, or that of a bridge above it: those are sometimes known where it is not.
    std::string path = function.path;
    for (std::size_t i = 0; i <= function.above.size(); ++i) {
      const auto number = parse_integer(probe_.files.text(path + "/numa_node"));
      if (number && *number >= 0) {
        const auto known = probe_.numa.find(static_cast<int>(*number));
        if (known != probe_.numa.end()) return known->second;
      }
      path.resize(path.rfind('/'));
    }
    const NodeId said = probe_.numa_by_cuda(function.bus);
    if (said.exists()) return said;
    const NodeId first = probe_.numa.begin()->second;
    if (probe_.numa.size() > 1) add_some(numa_guessed_, function.bus);
    return first;
  }

  void attach(const Function& function, NodeId parent, NodeId node) {
    describe(node, function.bus, function.path);
    link(parent, node, paths_[probe_.graph()[parent].name], function.path);
    probe_.by_bus[function.bus] = node;
  }

  void link(NodeId parent, NodeId child, const std::string& parent_path,
            const std::string& child_path) {
    Pcie pcie = read_rates(probe_.files, child_path);
    if (!parent_path.empty()) {
      // Both ends of a link tell the same current rate, if they tell any.
      const Pcie parents = read_rates(probe_.files, parent_path);
      if (!pcie.current.known()) pcie.current = parents.current;
      // A device in a slot with fewer lanes is worth knowing of; the link has the lesser.
      if (pcie.maximum.width > parents.maximum.width && parents.maximum.width > 0) {
        probe_.fact(child, "pcie_device_width", std::to_string(pcie.maximum.width));
      }
      pcie.maximum = lesser(pcie.maximum, parents.maximum);
    }
    Quantity gbs;
    if (pcie.maximum.known()) {
      gbs = {pcie_bandwidth(pcie.maximum), Origin::kReportedMaximum};
    } else if (pcie.current.known()) {
      gbs = {pcie_bandwidth(pcie.current), Origin::kReportedCurrent};
    } else {
      add_some(rates_hidden_, probe_.graph()[child].bus);
    }
    probe_.graph().join(LinkKind::kPcie, parent, child, gbs).pcie = pcie;
  }

  void add_nic(const Function& function, NodeId parent) {
    const auto found = ports_.find(function.bus);
    if (found == ports_.end()) {
      Port port;
      port.name = "nic" + function.bus;
      port.facts["state"] = "no driver";
      return attach(function, parent, add_port_node(port));
    }
    const std::vector<Port>& ports = found->second;
    if (ports.size() == 1) return attach(function, parent, add_port_node(ports[0]));
    const NodeId card = probe_.add(NodeKind::kCard, "card" + function.bus);
    attach(function, parent, card);
    for (const Port& port : ports) {
      probe_.graph().join(LinkKind::kInternal, card, add_port_node(port), kInside);
    }
  }

  NodeId add_port_node(const Port& port) {
    std::string name = port.name;
    while (!names_.insert(name).second) name += "+";  // Two devices of one name: a made-up tree.
    const NodeId node = probe_.add(NodeKind::kNic, name);
    for (const auto& [key, value] : port.facts) probe_.fact(node, key, value);
    if (port.mbps > 0) probe_.fact(node, "speed_mbps", std::to_string(port.mbps));
    if (!plane_.exists()) plane_ = probe_.graph().add({NodeKind::kPlane, "network"});
    Quantity gbs;
    if (port.mbps > 0) gbs = {port.mbps / 8000.0, Origin::kReportedCurrent};
    probe_.graph().join(LinkKind::kPort, node, plane_, gbs);
    return node;
  }

  // RDMA devices made of software (rxe, siw) are a processor's work: of the first NUMA node.
  void add_software_nics() {
    const auto found = ports_.find("");
    if (found == ports_.end()) return;
    for (const Port& port : found->second) {
      probe_.graph().join(LinkKind::kInternal, probe_.numa.begin()->second, add_port_node(port),
                          kInside);
    }
  }

  void describe(NodeId node, const std::string& bus, const std::string& path) {
    const FileTree& files = probe_.files;
    probe_.graph()[node].bus = bus;
    for (const char* key : {"class", "vendor", "device"}) {
      probe_.fact(node, key, files.text(path + "/" + key));
    }
    const auto group = files.real_path(path + "/iommu_group");
    if (group) {
      probe_.fact(node, "iommu_group", group->substr(group->rfind('/') + 1));
      probe_.fact(node, "iommu_type", files.text(*group + "/type"));  // "DMA-FQ", "identity".
    }
    const auto physical = files.real_path(path + "/physfn");
    if (physical)
      probe_.fact(node, "physfn", parse_bus(physical->substr(physical->rfind('/') + 1)));
    const std::string count = files.text(path + "/sriov_numvfs");
    if (count != "0") probe_.fact(node, "virtual_functions", count);
  }

  void say_what_is_hidden() {
    if (!numa_guessed_.empty()) {
      probe_.find(
          Severity::kWarning, "numa-unknown", "host0",
          fmt::format("the NUMA node of {} is not known; the first is assumed", numa_guessed_));
    }
    if (!flat_.empty()) {
      probe_.find(
          Severity::kNote, "pci-flat", "host0",
          fmt::format("on no bridge: {}; a virtual machine hides bridges, or these devices are "
                      "the processor's own",
                      flat_));
    }
    if (!rates_hidden_.empty()) {
      probe_.find(Severity::kWarning, "pcie-rate-hidden", "host0",
                  fmt::format("the PCI Express rate of {} is not known", rates_hidden_),
                  "look from outside of the virtual machine, or at lspci -vv as root");
    }
  }

  Probe& probe_;
  const std::map<std::string, std::vector<Port>>& ports_;
  std::vector<Function> functions_;
  std::map<std::string, std::pair<int, int>> gpu_numbers_;  // Number in the name, driver's index.
  std::map<std::string, std::string> paths_;                // Paths of bridges' nodes, by name.
  std::set<std::string> names_;                             // Names of NIC ports.
  NodeId plane_;
  std::string rates_hidden_, flat_, numa_guessed_;
};

}  // namespace

void probe_pci(Probe& probe, const std::map<std::string, std::vector<Port>>& ports) {
  PciProbe(probe, ports).run();
}

}  // namespace tutti::topology
