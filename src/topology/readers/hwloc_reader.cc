// File: topology/readers/hwloc_reader.cc: hwloc's files (XML 1 and 2, `lstopo file.xml`), through
// libhwloc.
//
// The model: packages and NUMA nodes; of the PCI tree what leads to a GPU or NIC. hwloc's bridges
// are single functions: below a host bridge comes a root port, below that a switch's upstream port,
// then its downstream ports, and so on in turns. hwloc gives what a link carries *now*, as GB/s
// after line coding, so neither the rate nor the width can be told, and sleeping links look slow.
//
// libhwloc trusts its input more than we do: what it gets was parsed within bounds first (xml.h).
#include "topology/readers/hwloc_reader.h"

#include <fmt/format.h>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/nccl/xml.h"
#include "topology/readers/reader.h"

#if TUTTI_HAVE_HWLOC
#include <hwloc.h>
#include <hwloc/distances.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#endif

namespace tutti::topology {
namespace {

#if TUTTI_HAVE_HWLOC
// The name of an info as a fact's: lower case, other characters as '_'.
std::string fact_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool keep = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    key += upper ? static_cast<char>(c - 'A' + 'a') : keep ? c : '_';
  }
  return key;
}

// The number at the end of "mlx5_0"; -1 where there is none.
int trailing_number(std::string_view name) {
  const std::size_t start = name.find_last_not_of("0123456789") + 1;
  int value = -1;
  std::from_chars(name.data() + start, name.data() + name.size(), value);
  return value;
}

// GB/s of payload of a PCI link. hwloc's GB/s are the signalling rate after line coding; ours are
// what pcie_bandwidth says. 2.5 and 5 GT/s make multiples of a quarter, the faster ones do not.
double hwloc_payload(double link_speed) {
  const bool old = std::fmod(link_speed, 0.25) == 0;
  // What hwloc says is a float: no more than six digits of it mean anything.
  return std::round(link_speed * 0.75 * (old ? 1 : 130.0 / 128) * 1e4) / 1e4;
}

// hwloc 3 writes what hwloc 2 reads, but for the kinds of OS devices, which became bits.
std::string hwloc_version_2(const Xml& xml) {
  // An adapter that is both Ethernet and InfiniBand is what verbs see of it.
  static constexpr std::array<std::pair<int, const char*>, 6> kKinds{
      {{32, "3"}, {16, "2"}, {4, "1"}, {8, "5"}, {64, "4"}, {1, "0"}}};
  struct Walker : pugi::xml_tree_walker {
    bool for_each(pugi::xml_node& node) override {
      pugi::xml_attribute type = node.attribute("osdev_type");
      if (!type) return true;
      const int bits = type.as_int();
      type.set_value("6");
      for (const auto& [bit, kind] : kKinds) {
        if ((bits & bit) == 0) continue;
        type.set_value(kind);
        break;
      }
      return true;
    }
  } walker;
  std::ostringstream out;
  pugi::xml_node root = xml.root();
  root.traverse(walker);
  root.attribute("version").set_value("2.0");
  root.print(out, "", pugi::format_raw);
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n" +
         out.str();
}

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Result<Topology> prepare(std::string_view source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return Error{Code::kSystem, fmt::format("{}: hwloc can't start", source)};
  }
  Topology topology(raw);
  if (hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL) != 0) {
    return Error{Code::kSystem, fmt::format("{}: hwloc can't keep all devices", source)};
  }
  return topology;
}

std::string_view text_or_empty(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

/// libhwloc keeps whatever number a file has for an enumerator, and to load such a one is
/// undefined.
template <class Enum>
int value_of(const Enum& enumerator) {
  static_assert(sizeof(Enum) == sizeof(int));
  int value = 0;
  std::memcpy(&value, &enumerator, sizeof(value));
  return value;
}

bool is_gpu(hwloc_obj_t object) {
  const auto& pci = object->attr->pcidev;
  const unsigned base = pci.class_id >> 8;
  if (base == 0x12) return true;
  if (base != 0x03) return false;
  return pci.vendor_id == 0x10de || pci.vendor_id == 0x1002 || pci.vendor_id == 0x8086;
}

std::vector<hwloc_obj_t> os_devices(hwloc_obj_t object, hwloc_obj_osdev_type_t type) {
  std::vector<hwloc_obj_t> found;
  for (hwloc_obj_t child = object->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_OS_DEVICE &&
        value_of(child->attr->osdev.type) == static_cast<int>(type)) {
      found.push_back(child);
    }
  }
  return found;
}

bool is_nic(hwloc_obj_t object) {
  return !os_devices(object, HWLOC_OBJ_OSDEV_OPENFABRICS).empty() ||
         !os_devices(object, HWLOC_OBJ_OSDEV_NETWORK).empty();
}

std::string address(hwloc_obj_t object) {
  const auto& pci = object->attr->pcidev;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
}

class HwlocReader {
 public:
  HwlocReader(hwloc_topology_t topology, std::string_view source)
      : topology_(topology), source_(source) {}

  Result<Imported> read() {
    host_ = made_.graph.add({NodeKind::kHost, "host0"});
    processors();
    if (made_.graph.all(NodeKind::kNuma).empty()) {
      return invalid("{}: hwloc found no NUMA node with cores in it", source_);
    }
    join_processors();
    io(hwloc_get_root_obj(topology_));
    distances();
    network();
    if (current_links_ > 0) {
      made_.findings.push_back(
          {Severity::kNote, "pcie-current-only", "",
           fmt::format(
               "the rates of {} PCI links are what they were at that moment, and idle links "
               "sleep",
               current_links_),
           "", "import a file made under load, or probe the machine"});
    }
    if (made_.graph.all(NodeKind::kGpu).empty()) {
      made_.findings.push_back(
          {Severity::kNote, "no-gpus", "", "no GPU in it", "",
           "if there is one, make the file with all I/O: lstopo --whole-io file.xml"});
    }
    made_.graph.notes.push_back(fmt::format("read from {} (hwloc)", source_));
    return std::move(made_);
  }

 private:
  std::vector<hwloc_obj_t> objects(hwloc_obj_type_t type) const {
    std::vector<hwloc_obj_t> found;
    for (hwloc_obj_t one = nullptr; (one = hwloc_get_next_obj_by_type(topology_, type, one));)
      found.push_back(one);
    return found;
  }

  void processors() {
    Graph& graph = made_.graph;
    const hwloc_obj_t machine = hwloc_get_root_obj(topology_);
    infos(machine, host_);
    for (const hwloc_obj_t package : objects(HWLOC_OBJ_PACKAGE)) {
      const NodeId node =
          graph.add({NodeKind::kPackage, unique(fmt::format("package{}", package->logical_index)),
                     host_, static_cast<int>(package->logical_index)});
      infos(package, node);
      nodes_.emplace(package, node);
    }
    int empty = 0;
    for (const hwloc_obj_t numa : objects(HWLOC_OBJ_NUMANODE)) {
      // Memory without cores: a GPU's, or a slow kind's. No PCI device is next to it.
      if (hwloc_bitmap_iszero(numa->cpuset) != 0) {
        ++empty;
        continue;
      }
      const int index = numa->os_index == HWLOC_UNKNOWN_INDEX || numa->os_index > 65535
                            ? -1
                            : static_cast<int>(numa->os_index);
      const std::string name = index < 0 ? "numa" : fmt::format("numa{}", index);
      nodes_.emplace(numa, graph.add({NodeKind::kNuma, unique(name), host_, index}));
    }
    if (empty > 0) {
      graph.notes.push_back(fmt::format("{} NUMA nodes without cores are left out", empty));
    }
  }

  void join_processors() {
    Graph& graph = made_.graph;
    bool joined = false;
    for (const NodeKind kind : {NodeKind::kPackage, NodeKind::kNuma}) {
      const auto all = graph.all(kind);
      if (kind == NodeKind::kNuma && joined) break;
      for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = i + 1; j < all.size(); ++j) {
          const auto said = [&](const char* key) {
            const std::string& own = fact(graph[all[i]], key);
            return own.empty() ? fact(graph[host_], key) : own;
          };
          int model = 0;
          const std::string text = said("cpumodelnumber");
          std::from_chars(text.data(), text.data() + text.size(), model);
          graph.join(LinkKind::kSocket, all[i], all[j],
                     socket_bandwidth(said("architecture"), said("cpuvendor"), model));
        }
      }
      if (kind != NodeKind::kPackage || all.empty()) continue;
      joined = true;
      // A NUMA node is in a package, or, with several packages to a node, over them. In the order
      // of hwloc, for that of nodes_ is the order of addresses.
      for (const hwloc_obj_t numa : objects(HWLOC_OBJ_NUMANODE)) {
        if (!nodes_.contains(numa)) continue;
        for (const hwloc_obj_t package : objects(HWLOC_OBJ_PACKAGE)) {
          if (hwloc_bitmap_intersects(package->cpuset, numa->cpuset) == 0) continue;
          graph.join(LinkKind::kInternal, nodes_[numa], nodes_[package], kInside);
        }
      }
    }
  }

  /// All bridges and devices that hang on an object of the processor tree, and on what is below.
  void io(hwloc_obj_t object) {
    if (object->io_first_child != nullptr && wanted(object)) {
      io_children(object, numa_of(object), 0);
    }
    for (hwloc_obj_t child = object->first_child; child != nullptr; child = child->next_sibling) {
      io(child);
    }
  }

  /// `bridges`: how many PCI bridges are above; even: a bridge here is a port's partner.
  void io_children(hwloc_obj_t object, NodeId parent, int bridges) {
    for (hwloc_obj_t child = object->io_first_child; child != nullptr;
         child = child->next_sibling) {
      if (!wanted(child)) continue;
      if (child->type == HWLOC_OBJ_PCI_DEVICE) {
        device(child, parent, bridges == 0);
        continue;
      }
      if (child->type != HWLOC_OBJ_BRIDGE) continue;
      if (value_of(child->attr->bridge.upstream_type) != HWLOC_OBJ_BRIDGE_PCI) {
        io_children(child, parent, bridges);
        continue;
      }
      const bool port = bridges % 2 == 0;
      const std::string bus = address(child);
      const NodeId node = made_.graph.add({port ? NodeKind::kPciePort : NodeKind::kPcieSwitch,
                                           unique("pci" + bus), host_, -1, bus});
      nodes_.emplace(child, node);
      made_.graph.join(port ? LinkKind::kInternal : LinkKind::kPcie, parent, node,
                       port ? kInside : link_figure(child));
      io_children(child, node, bridges + 1);
    }
  }

  void device(hwloc_obj_t object, NodeId parent, bool root) {
    const auto& pci = object->attr->pcidev;
    const std::string bus = address(object);
    const auto fabrics = os_devices(object, HWLOC_OBJ_OSDEV_OPENFABRICS);
    const auto nets = os_devices(object, HWLOC_OBJ_OSDEV_NETWORK);
    const auto& names = fabrics.empty() ? nets : fabrics;
    Node made{is_gpu(object) ? NodeKind::kGpu : NodeKind::kNic, "", host_, -1, bus};
    std::string name = "gpu" + bus;
    if (made.kind == NodeKind::kGpu) {
      for (hwloc_obj_t os = object->io_first_child; os != nullptr; os = os->next_sibling) {
        const std::string_view text = text_or_empty(os->name);
        const bool counted = text.starts_with("nvml") || text.starts_with("rsmi") ||
                             (text.starts_with("cuda") && made.index < 0);
        if (os->type == HWLOC_OBJ_OS_DEVICE && counted) made.index = trailing_number(text);
      }
      if (made.index >= 0) name = fmt::format("gpu{}", made.index);
    } else if (names.size() > 1) {
      made.kind = NodeKind::kCard;
      name = "pci" + bus;
    } else {
      name = text_or_empty(names.front()->name);
      made.index = trailing_number(name);
    }
    made.name = unique(std::move(name));
    made.facts.emplace("vendor", fmt::format("0x{:04x}", pci.vendor_id));
    made.facts.emplace("device", fmt::format("0x{:04x}", pci.device_id));
    made.facts.emplace("class", fmt::format("0x{:04x}00", pci.class_id));
    const NodeId node = made_.graph.add(std::move(made));
    nodes_.emplace(object, node);
    // In the processor's own chip there is no link.
    const Quantity rate = link_figure(object);
    made_.graph.join(root && !rate.known() ? LinkKind::kInternal : LinkKind::kPcie, parent, node,
                     rate);
    ports(object, node);
  }

  void ports(hwloc_obj_t object, NodeId node) {
    const auto fabrics = os_devices(object, HWLOC_OBJ_OSDEV_OPENFABRICS);
    const auto nets = os_devices(object, HWLOC_OBJ_OSDEV_NETWORK);
    for (hwloc_obj_t os = object->io_first_child; os != nullptr; os = os->next_sibling) {
      if (os->type != HWLOC_OBJ_OS_DEVICE) continue;
      nodes_.emplace(os, node);
      if (made_.graph[node].kind != NodeKind::kCard) infos(os, node);
    }
    infos(object, node);
    if (made_.graph[node].kind != NodeKind::kCard) return;
    for (const hwloc_obj_t os : fabrics.empty() ? nets : fabrics) {
      const std::string name(text_or_empty(os->name));
      const NodeId nic =
          made_.graph.add({NodeKind::kNic, unique(name), host_, trailing_number(name)});
      infos(os, nic);
      nodes_[os] = nic;
      made_.graph.join(LinkKind::kInternal, node, nic, kInside);
    }
  }

  bool wanted(hwloc_obj_t object) const {
    if (object->type == HWLOC_OBJ_PCI_DEVICE && (is_gpu(object) || is_nic(object))) return true;
    for (hwloc_obj_t child = object->io_first_child; child != nullptr;
         child = child->next_sibling) {
      if (wanted(child)) return true;
    }
    return false;
  }

  NodeId numa_of(hwloc_obj_t object) const {
    const hwloc_obj_t local = hwloc_get_non_io_ancestor_obj(topology_, object);
    NodeId first;
    for (const auto& [numa, node] : nodes_) {
      if (numa->type != HWLOC_OBJ_NUMANODE) continue;
      if (local != nullptr && hwloc_bitmap_intersects(numa->nodeset, local->nodeset) == 0) continue;
      if (!first.exists() || node < first) first = node;
    }
    if (!first.exists()) first = made_.graph.all(NodeKind::kNuma).front();
    return first;
  }

  Quantity link_figure(hwloc_obj_t object) {
    const double speed = static_cast<double>(object->attr->pcidev.linkspeed);
    if (!(speed > 0 && speed < 1e6)) return {};
    ++current_links_;
    return {hwloc_payload(speed), Origin::kReportedCurrent};
  }

  void distances() {
    for (const auto& [name, kind] : {std::pair{"NVLinkBandwidth", LinkKind::kNvlink},
                                     std::pair{"XGMIBandwidth", LinkKind::kXgmi}}) {
      unsigned count = 1;
      hwloc_distances_s* found = nullptr;
      if (hwloc_distances_get_by_name(topology_, name, &count, &found, 0) != 0 || count == 0) {
        continue;
      }
      matrix(*found, kind);
      hwloc_distances_release(topology_, found);
      made_.findings.push_back(
          {.code = "link-count-unknown",
           .what = fmt::format("{}: hwloc gives the bandwidth of pairs, not how "
                               "many links they have; each counts as one",
                               name)});
    }
  }

  void matrix(const hwloc_distances_s& found, LinkKind kind) {
    // hwloc gives signalling rates (25 GB/s a link of NVLink 2); programs get four fifths.
    constexpr double kPayload = 0.8 / 1000;
    std::set<std::pair<NodeId, NodeId>> seen;
    for (unsigned i = 0; i < found.nbobjs; ++i) {
      for (unsigned j = i + 1; j < found.nbobjs; ++j) {
        const auto there = found.values[std::size_t{i} * found.nbobjs + j];
        const auto back = found.values[std::size_t{j} * found.nbobjs + i];
        if ((there == 0 && back == 0) || there > 1'000'000'000 || back > 1'000'000'000) continue;
        const NodeId a = node_of(found.objs[i]), b = node_of(found.objs[j]);
        if (!a.exists() || !b.exists() || a == b || !seen.insert(std::minmax(a, b)).second)
          continue;
        const auto is = [&](NodeId node) { return made_.graph[node].kind == NodeKind::kGpu; };
        if (!is(a) && !is(b)) continue;
        const auto rate = [](hwloc_uint64_t mbps) {
          return Quantity{static_cast<double>(mbps) * kPayload, Origin::kReportedMaximum};
        };
        made_.graph.add({kind, a, b, 1, rate(there), rate(back)});
      }
    }
  }

  NodeId node_of(hwloc_obj_t object) {
    if (object == nullptr) return {};
    if (const auto at = nodes_.find(object); at != nodes_.end()) return at->second;
    if (text_or_empty(object->subtype) == "NVSwitch") {
      const std::size_t count = made_.graph.all(NodeKind::kNvSwitch).size();
      const std::string bus = object->type == HWLOC_OBJ_PCI_DEVICE ? address(object) : "";
      const NodeId node = made_.graph.add(
          {NodeKind::kNvSwitch, unique(fmt::format("nvswitch{}", count)), host_, -1, bus});
      nodes_.emplace(object, node);
      return node;
    }
    if (object->type == HWLOC_OBJ_OS_DEVICE || object->type == HWLOC_OBJ_PCI_DEVICE) {
      const auto at = nodes_.find(object->parent);
      return at == nodes_.end() ? NodeId{} : at->second;
    }
    return object->nodeset == nullptr ? NodeId{} : numa_of(object);
  }

  void infos(hwloc_obj_t object, NodeId node) {
    for (unsigned i = 0; i < object->infos_count; ++i) {
      made_.graph[node].facts.emplace(fact_key(text_or_empty(object->infos[i].name)),
                                      text_or_empty(object->infos[i].value));
    }
  }

  void network() {
    const auto nics = made_.graph.all(NodeKind::kNic);
    if (nics.empty()) return;
    const NodeId plane = made_.graph.add({NodeKind::kPlane, "network"});
    for (const NodeId nic : nics) made_.graph.join(LinkKind::kPort, nic, plane);
  }

  std::string unique(std::string name) {
    name = "host0/" + name;
    for (char& c : name) {
      if (static_cast<unsigned char>(c) <= ' ') c = '_';
    }
    const std::string stem = name;
    for (int i = 2; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", stem, i);
    return name;
  }

  hwloc_topology_t topology_;
  std::string_view source_;
  Imported made_;
  NodeId host_;
  std::map<hwloc_obj_t, NodeId> nodes_;
  std::set<std::string> names_;
  int current_links_ = 0;
};

#endif

}  // namespace

#if TUTTI_HAVE_HWLOC
Result<Imported> read_hwloc_here(std::string_view text, std::string_view source) {
  TUTTI_TRY(const Xml screened, Xml::parse(text, source));
  if (text.find("<!ENTITY") != std::string_view::npos) {
    return invalid("{}: XML with entities of its own is not read", source);
  }
  TUTTI_TRY(const Topology topology, prepare(source));
  const std::string_view version = screened.root().attribute("version").value();
  // hwloc wants the terminating zero.
  const std::string copy = version.starts_with("3") ? hwloc_version_2(screened) : std::string(text);
  if (hwloc_topology_set_xmlbuffer(topology.get(), copy.c_str(),
                                   static_cast<int>(copy.size() + 1)) != 0 ||
      hwloc_topology_load(topology.get()) != 0) {
    return invalid(
        "{}: libhwloc can't read it as a topology; "
        "is it whole, and of hwloc 1 or 2?",
        source);
  }
  return HwlocReader(topology.get(), source).read();
}
#else
Result<Imported> read_hwloc_here(std::string_view, std::string_view source) {
  return Error{Code::kUnsupported,
               fmt::format("{}: this build has no hwloc; build with libhwloc-dev", source)};
}
#endif

}  // namespace tutti::topology
