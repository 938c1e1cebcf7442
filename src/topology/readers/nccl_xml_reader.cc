// File: topology/readers/nccl_xml_reader.cc: NCCL's and RCCL's topology files as graphs: the
// elements.
#include "topology/readers/nccl_xml_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/readers/reader.h"

namespace tutti::topology {
namespace {

bool is_bridge(std::string_view type) { return type.starts_with("0x0604"); }
bool is_gpu_class(std::string_view type) {
  return type.starts_with("0x03") || type.starts_with("0x12");
}

}  // namespace

int whole_number(std::string_view text, int otherwise) {
  return parse_number<int>(text).value_or(otherwise);
}

double positive_number(std::string_view text) {
  const double value = parse_number<double>(text).value_or(0);
  return value > 0 && value < 1e12 ? value : 0;
}

void NcclReader::found(Severity severity, std::string_view code, pugi::xml_node element,
                       std::string_view what, std::string_view remedy) {
  const auto [at, fresh] = seen_.try_emplace(std::string(code), Seen{made_.findings.size(), 1});
  if (!fresh) {
    ++at->second.times;
    return;
  }
  made_.findings.push_back({severity, std::string(code), xml_.where(element), std::string(what), "",
                            std::string(remedy), 0});
}

std::string NcclReader::unique(std::string name, std::string_view suffix) {
  if (!names_.insert(name).second) {
    name += fmt::format("@{}", suffix);
    for (int i = 2; !names_.insert(name).second; ++i) name += fmt::format("_{}", i);
  }
  return name;
}

/// Attributes that have no field, as facts; `skip` lists names with a blank before and after.
void NcclReader::facts(pugi::xml_node element, NodeId node, std::string_view skip) {
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

NodeId NcclReader::host_of(pugi::xml_node element) {
  const std::string hash = element.attribute("host_hash").value();
  const auto found = hosts_.find(hash);
  if (found != hosts_.end()) return found->second;
  const NodeId host =
      made_.graph.add({NodeKind::kHost, unique(fmt::format("host{}", hosts_.size()), hash)});
  facts(xml_.root(), host);
  hosts_.emplace(hash, host);
  return host;
}

Status NcclReader::cpu(pugi::xml_node element) {
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

Status NcclReader::children(pugi::xml_node element, NodeId parent, NodeId numa) {
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

NodeKind NcclReader::kind_of(pugi::xml_node element, std::string_view type) const {
  if (element.child("gpu")) return NodeKind::kGpu;
  const pugi::xml_node nic = element.child("nic");
  const pugi::xml_node net = nic ? nic.child("net") : element.child("net");
  if (net) return net.next_sibling("net") ? NodeKind::kCard : NodeKind::kNic;
  if (is_bridge(type) || element.child("pci")) return NodeKind::kPcieSwitch;
  const std::string_view vendor = element.attribute("vendor").value();
  const bool console = vendor == "0x1a03" || vendor == "0x102b";  // A board's own VGA chip.
  if (is_gpu_class(type) && !console) return NodeKind::kGpu;
  if (type.starts_with("0x02")) return NodeKind::kNic;
  return NodeKind::kPciePort;
}

Status NcclReader::pci(pugi::xml_node element, NodeId parent, NodeId numa) {
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
  name = unique(fmt::format("{}/{}", host_name, name), bus);
  const NodeId node = made_.graph.add({kind, std::move(name), host, -1, bus});
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

void NcclReader::pci_link(pugi::xml_node element, NodeId parent, NodeId node) {
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

Status NcclReader::gpu(pugi::xml_node element, NodeId node, NodeId numa) {
  if (!element) return ok();
  facts(element, node, " dev ");
  Node& made = made_.graph[node];
  made.index = std::max(whole_number(element.attribute("dev").value(), -1), -1);
  if (element.next_sibling("gpu")) {
    found(Severity::kWarning, "gpu-shared", element,
          "several ranks on one GPU; the first is kept, for a rank here has a GPU of its own");
  }
  gpus_.push_back({element, node, numa});
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

Status NcclReader::nic(pugi::xml_node element, NodeId parent, bool merge) {
  NodeId node = parent;
  const NodeId host = made_.graph[parent].host;
  const std::string raw = element.attribute("name").value();
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
  const bool same = full == fmt::format("{}/{}", made_.graph[host].name, raw);
  facts(element, node, same ? " name dev speed " : " dev speed ");
  net(element, node);
  return ok();
}

void NcclReader::net(pugi::xml_node element, NodeId node) {
  made_.graph[node].index = std::max(whole_number(element.attribute("dev").value(), -1), -1);
  const std::string speed = element.attribute("speed").value();
  if (element.attribute("speed")) made_.graph[node].facts.emplace("speed_mbps", speed);
}

Result<Imported> NcclReader::read() {
  const pugi::xml_node root = xml_.root();
  if (xml_.has_header()) {
    found(Severity::kWarning, "nccl-cannot-read", root, "NCCL fails at the <?xml ...?> header",
          "delete the first line");
  }
  if (text_.find('\t') != std::string_view::npos) {
    found(Severity::kWarning, "nccl-cannot-read-tabs", root, "NCCL fails at tab characters",
          "replace them by blanks");
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
  finish();
  return std::move(made_);
}

namespace {

bool is_nccl(std::string_view text) { return first_element(text) == "system"; }

Result<Imported> read_nccl(std::string_view text, std::string_view source) {
  TUTTI_TRY(Xml xml, Xml::parse(text, source));
  if (std::string_view(xml.root().name()) != "system") {
    return xml.error(xml.root(), "<{}> instead of <system>", xml.root().name());
  }
  return NcclReader(std::move(xml), text, source).read();
}

}  // namespace

constinit const Reader nccl_xml_reader{"nccl_xml", "NCCL's or RCCL's topology file", is_nccl,
                                       read_nccl};

}  // namespace tutti::topology
