// File: topology/nccl/nccl_xml_reader.cc: NCCL's and RCCL's topology files as graphs.
//
// The model: <cpu> is a NUMA node, <pci> a node by its class, <gpu>/<nic>/<net> fill the node of
// their <pci>. Links between GPUs are gathered first and made at the end, for their targets may
// come later in the file. Where NCCL would silently guess, a finding says so, once per kind.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "topology/graph/count_gpus.h"
#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/nccl/nccl_elements.h"
#include "topology/nccl/nccl_xml.h"

namespace tutti::topology {
namespace {

/// It has more than 20 functions: one for each element of the file.
class NcclReader {
 public:
  NcclReader(Xml xml, std::string_view text, std::string_view source)
      : xml_(std::move(xml)), text_(text), source_(source) {}

  Result<Imported> read() {
    const pugi::xml_node root = xml_.root();
    if (xml_.has_header()) {
      found(Severity::kWarning, "nccl-cannot-read", root, "NCCL fails at the <?xml ...?> header",
            "delete the first line");
    }
    if (text_.find('\t') != std::string_view::npos) {
      found(Severity::kWarning, "nccl-cannot-read-tabs", root, "NCCL fails at tab characters",
            "replace them by blanks");
    }
    const std::string_view version = root.attribute("version").value();
    if (!version.empty() && !nccl_knows_version(version)) {
      found(Severity::kWarning, "nccl-version", root,
            fmt::format("version '{}' is none that NCCL (1) or RCCL (2) reads", version));
    }
    for (const pugi::xml_node child : root.children()) {
      if (std::string_view(child.name()) == "cpu") {
        TUTTI_RETURN_IF_ERROR(cpu(child));
      } else if (child.type() == pugi::node_element) {
        found(Severity::kNote, "element-ignored", child,
              fmt::format("element <{}> is not known in <system>", child.name()));
      }
    }
    if (made_.graph.nodes.empty()) return xml_.error(root, "a <system> without any <cpu>");
    TUTTI_RETURN_IF_ERROR(peers());
    TUTTI_RETURN_IF_ERROR(pci_links());
    sockets();
    count_gpus(made_.graph);  // Files of clouds list addresses only.
    finish();
    return std::move(made_);
  }

 private:
  Status cpu(pugi::xml_node element) {
    const NodeId host = host_of(element);
    const std::string_view id = element.attribute("numaid").value();
    const int index = whole_number(id, -2);
    if (index < -1) {
      return xml_.error(element, "cpu needs numaid, a whole number from -1 on, not '{}'", id);
    }
    if (index == -1) {
      found(Severity::kWarning, "numa-unknown", element,
            "numaid is -1: the kernel did not say which NUMA node this is",
            "a virtual machine that hides NUMA? compare with the host's lscpu");
    }
    std::string name = fmt::format("{}/numa{}", made_.graph[host].name,
                                   index < 0 ? std::string() : std::to_string(index));
    if (names_.contains(name)) {
      return xml_.error(element, "a second cpu with numaid {}", index);
    }
    names_.insert(name);
    const NodeId numa =
        made_.graph.add({NodeKind::kNuma, std::move(name), host, std::max(index, -1)});
    facts(element, numa, " numaid ");
    return children(element, numa, numa);
  }

  Status children(pugi::xml_node element, NodeId parent, NodeId numa) {
    for (const pugi::xml_node child : element.children()) {
      if (child.type() != pugi::node_element) continue;
      const std::string_view name = child.name();
      if (name == "pci") {
        TUTTI_RETURN_IF_ERROR(pci(child, parent, numa));
      } else if (name == "nic" && parent == numa) {
        for (const pugi::xml_node port : child.children("net")) {
          TUTTI_RETURN_IF_ERROR(nic(port, numa, false));
        }
      } else if (name == "net" && parent == numa) {
        TUTTI_RETURN_IF_ERROR(nic(child, numa, false));
      } else if (name == "pcilink") {
        pcilinks_.emplace_back(child, parent);
      } else if (name != "gpu" && name != "nic" && name != "net") {
        found(Severity::kNote, "element-ignored", child,
              fmt::format("element <{}> is not known here; NCCL skips it too", name));
      } else if (parent == numa) {
        return xml_.error(child, "<{}> directly in <cpu>; it needs a <pci>", name);
      }
    }
    return ok();
  }

  Status pci(pugi::xml_node element, NodeId parent, NodeId numa) {
    const std::string_view raw = element.attribute("busid").value();
    std::string bus = pci_address(raw);
    if (bus.empty()) {
      return xml_.error(element, "pci needs busid, as in 0000:07:00.0, not '{}'", raw);
    }
    const std::string_view type = element.attribute("class").value();
    const NodeId host = made_.graph[numa].host;
    const std::string& host_name = made_.graph[host].name;
    const NodeKind kind = kind_of(element, type);
    std::string name = kind == NodeKind::kGpu   ? "gpu" + bus
                       : kind == NodeKind::kNic ? "nic" + bus
                                                : "pci" + bus;
    const pugi::xml_node gpu_element = element.child("gpu");
    const std::string_view dev = gpu_element.attribute("dev").value();
    if (whole_number(dev, -1) >= 0 && !names_.contains(fmt::format("{}/gpu{}", host_name, dev))) {
      name = fmt::format("gpu{}", dev);
    }
    const NodeId node =
        made_.graph.add({kind, unique(fmt::format("{}/{}", host_name, name), bus), host, -1, bus});
    if (!by_bus_.emplace(fmt::format("{} {}", host.value, bus), node).second) {
      return xml_.error(element, "a second pci with busid {}", bus);
    }
    facts(element, node, raw == bus ? " busid " : " ");
    if (kind == NodeKind::kPciePort && type.empty()) {
      found(Severity::kWarning, "pci-class-unknown", element,
            "a pci without class: NCCL asks the machine that it runs on, a file can't tell",
            "dump the file on the machine itself: NCCL_TOPO_DUMP_FILE");
    }
    pci_link(element, parent, node);
    if (kind == NodeKind::kGpu) TUTTI_RETURN_IF_ERROR(gpu(gpu_element, node, numa));
    const pugi::xml_node nics = element.child("nic") ? element.child("nic") : element;
    for (const pugi::xml_node port : nics.children("net")) {
      if (kind != NodeKind::kGpu) TUTTI_RETURN_IF_ERROR(nic(port, node, kind == NodeKind::kNic));
    }
    return children(element, node, numa);
  }

  Status gpu(pugi::xml_node element, NodeId node, NodeId numa) {
    if (!element) return ok();
    facts(element, node, " dev ");
    Node& made = made_.graph[node];
    made.index = std::max(whole_number(element.attribute("dev").value(), -1), -1);
    if (element.next_sibling("gpu")) {
      found(Severity::kWarning, "gpu-shared", element,
            "several ranks on one GPU; the first is kept, for a rank here has a GPU of its own");
    }
    if (made.index >= 0 && !devs_.emplace(made.host, made.index).second) {
      found(Severity::kWarning, "gpu-dev-twice", element,
            fmt::format("a second gpu with dev {}; it is called {}", made.index, made.name),
            "give each GPU of a host a dev of its own");
    }
    gpus_.emplace_back(element, node, numa);
    const pugi::xml_node c2c = element.child("c2c");
    if (!c2c) return ok();
    const double each = positive_number(c2c.attribute("bw").value());
    const int count = whole_number(c2c.attribute("count").value(), 0);
    if (each <= 0 || count <= 0 || count > 64) {
      return xml_.error(c2c, "c2c needs bw (MB/s) and count (1 to 64), both above 0");
    }
    const Quantity bandwidth{each * count / 1000, Origin::kReportedMaximum};
    made_.graph.join(LinkKind::kC2c, numa, node, bandwidth).count = count;
    return ok();
  }

  Status nic(pugi::xml_node element, NodeId parent, bool merge) {
    NodeId node = parent;
    const NodeId host = made_.graph[parent].host;
    const std::string raw = element.attribute("name").value();
    // Dumps of containers list a device without PCI under every CPU.
    const auto [listed, fresh] = nets_.try_emplace(
        fmt::format("{} {} {}", host.value, element.attribute("dev").value(), raw), parent);
    const bool on_pci = made_.graph[parent].kind != NodeKind::kNuma;
    if (!raw.empty() && !fresh && !on_pci) {
      found(Severity::kNote, "net-twice", element,
            fmt::format("net '{}' is listed again; it is one device, kept below {}", raw,
                        made_.graph[listed->second].name));
      return ok();
    }
    std::string local = raw;
    const bool usable =
        !raw.empty() && raw.size() <= 255 &&
        std::none_of(raw.begin(), raw.end(), [](unsigned char c) { return c <= ' '; });
    if (!usable) local = "nic" + made_.graph[parent].bus;
    const std::string full =
        unique(fmt::format("{}/{}", made_.graph[host].name, local),
               fmt::format("{}:{}", made_.graph[parent].bus, element.attribute("port").value()));
    if (merge) {
      names_.erase(made_.graph[node].name);
      made_.graph[node].name = full;
    } else {
      node = made_.graph.add({NodeKind::kNic, full, host});
      made_.graph.join(LinkKind::kInternal, parent, node, kInside);  // Or no hardware at all.
    }
    elements_[node] = element;
    const bool same = full == fmt::format("{}/{}", made_.graph[host].name, raw);
    facts(element, node, same ? " name dev speed " : " dev speed ");
    made_.graph[node].index = std::max(whole_number(element.attribute("dev").value(), -1), -1);
    if (const pugi::xml_attribute speed = element.attribute("speed"))
      made_.graph[node].facts.emplace("speed_mbps", speed.value());
    return ok();
  }

  Status peers() {
    for (const auto& [element, gpu, numa] : gpus_) {
      for (const pugi::xml_node child : element.children()) {
        const std::string_view name = child.name();
        if (name == "nvlink" || name == "xgmi") TUTTI_RETURN_IF_ERROR(peer(child, gpu, numa));
      }
    }
    for (const Pair& pair : pairs_) {
      const NodeId gpu =
          made_.graph[pair.a].kind == NodeKind::kGpu ? pair.a : pair.b;  // One of both is.
      const Quantity each = pair.kind == LinkKind::kXgmi
                                ? xgmi_bandwidth(fact(gpu, "gcn"))
                                : nvlink_bandwidth(whole_number(fact(gpu, "sm"), 0));
      if (each.origin == Origin::kAssumed) {
        found(Severity::kWarning, "link-figure-assumed", xml_.root(),
              fmt::format("{} GB/s a {} assumed for {}: its chip is not known", each.value,
                          to_string(pair.kind), made_.graph[gpu].name));
      }
      // Rounded, so that 6 * 20.6 is 123.6 to people too.
      const auto rate = [&](int links) {
        return Quantity{std::round(each.value * links * 1e6) / 1e6, each.origin};
      };
      made_.graph.add({pair.kind, pair.a, pair.b, std::max(pair.forward, pair.backward),
                       rate(pair.forward), rate(pair.backward)});
    }
    return ok();
  }

  Status peer(pugi::xml_node element, NodeId gpu, NodeId numa) {
    const LinkKind kind =
        std::string_view(element.name()) == "xgmi" ? LinkKind::kXgmi : LinkKind::kNvlink;
    const std::string_view target = element.attribute("target").value();
    const std::string_view type = element.attribute("tclass").value();
    const int count = whole_number(element.attribute("count").value(), 0);
    if (target.empty() || target.size() > 64 || count <= 0 || count > 1024) {
      return xml_.error(element, "{} needs target and count (1 to 1024)", element.name());
    }
    const NodeId host = made_.graph[gpu].host;
    const auto at = by_bus_.find(fmt::format("{} {}", host.value, pci_address(target)));
    if (at != by_bus_.end() && made_.graph[at->second].kind == NodeKind::kGpu) {
      if (type != fact(at->second, "class")) made_.graph[gpu].facts["tclass"] = type;
      return gpu_pair(element, kind, gpu, at->second, count);
    }
    if (type.starts_with("0x068001")) {
      // POWER: the bridge belongs to the processor next to the GPU.
      made_.graph[gpu].facts["cpu_target"] = target;
      pairs_.push_back({kind, numa, gpu, count, count});
      return ok();
    }
    if (is_gpu_class(type)) {
      found(Severity::kWarning, "nvlink-target-missing", element,
            fmt::format("{} to GPU {}, which is not in the file; the link is left out",
                        element.name(), target),
            "was the file dumped where only some of the GPUs were visible?");
      return ok();
    }
    return gpu_pair(element, kind, gpu, nvswitch(target, type, host), count);
  }

  Status gpu_pair(pugi::xml_node element, LinkKind kind, NodeId gpu, NodeId other, int count) {
    if (gpu == other) {
      return xml_.error(element,
                        "gpu {} has {} {}s to itself; the file is defective: "
                        "dump a new one with NCCL_TOPO_DUMP_FILE",
                        made_.graph[gpu].bus, count, element.name());
    }
    const auto [low, high] = std::minmax(gpu, other);
    const auto [at, fresh] = pair_of_.try_emplace({kind, low, high}, pairs_.size());
    if (fresh) pairs_.push_back({kind, low, high});
    Pair& pair = pairs_[at->second];
    (gpu == low ? pair.forward : pair.backward) += count;
    // A switch's side is not listed: links are as many back as forth.
    if (made_.graph[other].kind == NodeKind::kNvSwitch) {
      (gpu == low ? pair.backward : pair.forward) += count;
    }
    return ok();
  }

  Status pci_links() {
    for (const auto& [element, node] : pcilinks_) {
      const std::string target = pci_address(element.attribute("target").value());
      const auto at = by_bus_.find(fmt::format("{} {}", made_.graph[node].host.value, target));
      if (at == by_bus_.end() || at->second == node) {
        return xml_.error(element, "pcilink to '{}', which is no other pci of this file",
                          element.attribute("target").value());
      }
      const auto [low, high] = std::minmax(node, at->second);
      if (!pair_of_.try_emplace({LinkKind::kPcie, low, high}, 0).second) continue;
      made_.graph.join(LinkKind::kInternal, low, high);
    }
    return ok();
  }

  NodeId nvswitch(std::string_view target, std::string_view type, NodeId host) {
    // Hidden switches have an address that is none: all that are not told apart are one node.
    const std::string bus = pci_address(target);
    const bool hidden = bus.empty() || target.starts_with("fffffff");
    const std::string key = fmt::format("{} {}", host.value, hidden ? "nvswitch" : bus);
    const auto at = by_bus_.find(key);
    if (at != by_bus_.end()) return at->second;
    std::string name;
    for (int i = 0; name.empty() || names_.contains(name); ++i) {
      name = fmt::format("{}/nvswitch{}", made_.graph[host].name, i);
    }
    names_.insert(name);
    Node node{NodeKind::kNvSwitch, std::move(name), host, -1, hidden ? "" : bus};
    if (hidden || target != bus) node.facts.emplace("target", target);
    if (type != "0x068000") node.facts.emplace("class", type);
    const NodeId made = made_.graph.add(std::move(node));
    by_bus_.emplace(key, made);
    return made;
  }

  void sockets() {
    const std::vector<NodeId> numas = made_.graph.all(NodeKind::kNuma);
    for (std::size_t i = 0; i < numas.size(); ++i) {
      for (std::size_t j = i + 1; j < numas.size(); ++j) {
        if (made_.graph[numas[i]].host != made_.graph[numas[j]].host) continue;
        const Quantity rate = socket_bandwidth(fact(numas[i], "arch"), fact(numas[i], "vendor"),
                                               whole_number(fact(numas[i], "modelid"), 0));
        if (!rate.known()) {
          found(Severity::kWarning, "socket-unknown", xml_.root(),
                "cpu without arch and vendor: what joins the NUMA nodes is not known",
                "write arch, vendor, familyid and modelid of the machine's processors");
        }
        made_.graph.join(LinkKind::kSocket, numas[i], numas[j], rate);
      }
    }
  }

  void finish() {
    NodeId plane;
    for (const NodeId nic : made_.graph.all(NodeKind::kNic)) {
      if (!plane.exists()) plane = made_.graph.add({NodeKind::kPlane, "network"});
      const double mbps = positive_number(fact(nic, "speed_mbps"));
      Quantity rate;
      if (mbps > 0) {
        rate = {mbps / 8000, Origin::kReportedCurrent};
      } else {
        const auto net = elements_.find(nic);
        const std::string& text = fact(nic, "speed_mbps");
        found(Severity::kWarning, "nic-speed-unknown",
              net == elements_.end() ? xml_.root() : net->second,
              fmt::format("the speed of {} is not known{}", made_.graph[nic].name,
                          text.empty() ? "" : fmt::format(": '{}' is none", text)),
              "write speed (Mb/s) into its <net>");
      }
      made_.graph.join(LinkKind::kPort, nic, plane, rate);
    }
    if (made_.graph.all(NodeKind::kGpu).empty()) {
      found(Severity::kWarning, "no-gpus", xml_.root(), "no GPU can be told in this file");
    }
    for (const auto& [code, seen] : seen_) {
      Finding& finding = made_.findings[seen.finding];
      if (seen.times > 1) finding.evidence = fmt::format("{} times in this file", seen.times);
    }
    made_.graph.notes.push_back(fmt::format("read from {} (NCCL XML)", source_));
  }

  /// Attributes that have no field, as facts; `skip` lists names with a blank before and after.
  void facts(pugi::xml_node element, NodeId node, std::string_view skip = "") {
    for (const pugi::xml_attribute attribute : element.attributes()) {
      const std::string_view name = attribute.name();
      if (skip.find(fmt::format(" {} ", name)) != std::string_view::npos) continue;
      std::string key(name);
      // A <pci> shares its node with a <gpu> or <net>, whose attributes it must not take.
      const bool is_pci = std::string_view(element.name()) == "pci";
      if (!nccl_knows_attribute(element.name(), name)) key = (is_pci ? "pci_" : "xml_") + key;
      if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
        found(Severity::kNote, "attribute-ignored", element,
              fmt::format("attribute '{}' is not kept: its name is not of a-z, 0-9, _", name));
        continue;
      }
      made_.graph[node].facts.emplace(std::move(key), attribute.value());
    }
  }

  void pci_link(pugi::xml_node element, NodeId parent, NodeId node) {
    Node& made = made_.graph[node];
    const std::string speed = element.attribute("link_speed").value();
    const std::string width = element.attribute("link_width").value();
    Origin origin = Origin::kReportedMaximum;
    PcieRate rate{link_speed(speed).value_or(0), whole_number(width, 0)};
    if (rate.gigatransfers > 0 && !nccl_knows_speed(speed)) {
      found(Severity::kWarning, "nccl-link-speed", element,
            fmt::format("NCCL does not know the link speed '{}' and takes 8 GT/s for it", speed),
            fmt::format("write \"{} GT/s\"", rate.gigatransfers));
    }
    if (rate.gigatransfers <= 0) {
      rate.gigatransfers = 8;
      origin = Origin::kAssumed;
      found(Severity::kWarning, "pcie-speed-unknown", element,
            fmt::format("link speed '{}' says nothing; 8 GT/s assumed, as NCCL does", speed),
            "write the rate of the machine, as in \"16 GT/s\"");
    }
    if (rate.width <= 0 || rate.width > 32) {
      rate.width = 16;
      origin = Origin::kAssumed;
      found(Severity::kWarning, "pcie-width-unknown", element,
            fmt::format("link width '{}' says nothing; 16 lanes assumed, as NCCL does", width),
            "write the lanes of the machine, as in \"16\"");
    }
    // Texts that the writer would make of the rate need not be kept.
    if (origin == Origin::kReportedMaximum) {
      if (speed == fmt::format("{} GT/s", rate.gigatransfers)) made.facts.erase("link_speed");
      if (width == std::to_string(rate.width)) made.facts.erase("link_width");
    }
    const Quantity bandwidth{pcie_bandwidth(rate), origin};
    made_.graph.join(LinkKind::kPcie, parent, node, bandwidth).pcie = Pcie{{}, rate};
  }

  NodeId host_of(pugi::xml_node element) {
    const std::string hash = element.attribute("host_hash").value();
    const std::size_t number = hosts_.size();
    const auto [found, fresh] = hosts_.try_emplace(hash);
    if (!fresh) return found->second;
    found->second = made_.graph.add({NodeKind::kHost, unique(fmt::format("host{}", number), hash)});
    facts(xml_.root(), found->second);
    return found->second;
  }

  const std::string& fact(NodeId node, const char* key) const {
    return topology::fact(made_.graph[node], key);
  }

  std::string unique(std::string name, std::string_view suffix) {
    if (!names_.insert(name).second) {
      name += fmt::format("@{}", suffix);
      for (int i = 2; !names_.insert(name).second; ++i) name += fmt::format("_{}", i);
    }
    return name;
  }

  void found(Severity severity, std::string_view code, pugi::xml_node element,
             std::string_view what, std::string_view remedy = "") {
    const auto [at, fresh] = seen_.try_emplace(std::string(code), Seen{made_.findings.size(), 1});
    if (!fresh) {
      ++at->second.times;
      return;
    }
    made_.findings.push_back({severity, std::string(code), xml_.where(element), std::string(what),
                              "", std::string(remedy), 0});
  }

  struct Seen {
    std::size_t finding;
    int times;
  };
  struct Pair {
    LinkKind kind;
    NodeId a, b;
    int forward = 0, backward = 0;
  };
  Xml xml_;
  std::string_view text_;
  std::string_view source_;
  Imported made_;
  std::map<std::string, NodeId> by_bus_;  // "<host> <address>"
  std::map<std::string, NodeId> hosts_;   // By host_hash.
  std::set<std::string> names_;
  std::set<std::pair<NodeId, int>> devs_;      // GPUs, by host.
  std::map<std::string, NodeId> nets_;         // "<host> <dev> <name>": the node above.
  std::map<NodeId, pugi::xml_node> elements_;  // By NIC.
  std::map<std::string, Seen, std::less<>> seen_;
  std::vector<std::tuple<pugi::xml_node, NodeId, NodeId>> gpus_;  // With node and NUMA node.
  std::vector<std::pair<pugi::xml_node, NodeId>> pcilinks_;       // <pcilink> elements.
  std::vector<Pair> pairs_;
  std::map<std::tuple<LinkKind, NodeId, NodeId>, std::size_t> pair_of_;
};

}  // namespace

bool is_nccl_xml(std::string_view text) { return first_element(text) == "system"; }

Result<Imported> read_nccl_xml(std::string_view text, std::string_view source) {
  TUTTI_TRY(Xml xml, Xml::parse(text, source));
  if (std::string_view(xml.root().name()) != "system") {
    return xml.error(xml.root(), "<{}> instead of <system>", xml.root().name());
  }
  return NcclReader(std::move(xml), text, source).read();
}

}  // namespace tutti::topology
