// File: topology/nccl/nccl_xml.cc: a graph as NCCL's topology file.
//
// The model: from each NUMA node down along PCI links. Ports that lead on are passed through, for
// NCCL's model has switches only, and the rate of the last link on the way is the element's. What
// was read from such a file has the texts of its attributes as facts; they go before what the
// fields say (nccl_xml.h).
#include "topology/nccl/nccl_xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "topology/graph/nccl_figures.h"

namespace tutti::topology {
namespace {

using Attributes = std::vector<std::pair<std::string, std::string>>;

constexpr int kMostDepth = 64;
constexpr std::array<std::string_view, 6> kPciFacts{
    "vendor", "device", "subsystem_vendor", "subsystem_device", "link_speed", "link_width"};
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("&#{};", static_cast<int>(c));
        } else {
          out += c;
        }
    }
  }
  return out;
}

bool below_pci(NodeKind kind) {
  return kind == NodeKind::kPciePort || kind == NodeKind::kPcieSwitch || kind == NodeKind::kGpu ||
         kind == NodeKind::kNic || kind == NodeKind::kCard;
}

class Writer {
 public:
  explicit Writer(const Graph& graph)
      : graph_(graph), next_to_(graph), visited_(graph.nodes.size()) {}

  Result<std::string> write() {
    const std::vector<NodeId> numas = graph_.all(NodeKind::kNuma);
    if (numas.empty()) {
      return Error{Code::kUnsupported,
                   "write NCCL XML: the graph has no NUMA node, and NCCL's files begin with them"};
    }
    Attributes attributes;
    if (const NodeId host = graph_[numas.front()].host; host.exists()) {
      facts(host, "system", attributes);
    }
    if (attributes.empty()) attributes.emplace_back("version", "1");
    open(0, "system", attributes, false);
    for (const NodeId numa : numas) cpu(numa);
    out_ += "</system>\n";
    if (const NodeId lost = first_lost(); lost.exists()) {
      return Error{
          Code::kUnsupported,
          fmt::format("write NCCL XML: {} does not hang off a NUMA node by PCI or C2C, and "
                      "NCCL's files list devices below one; join it to one in its text "
                      "form",
                      graph_[lost].name)};
    }
    if (!no_address_.empty()) {
      return Error{Code::kUnsupported, fmt::format("write NCCL XML: {} has no PCI address; write "
                                                   "bus=0000:07:00.0 into its text form",
                                                   no_address_)};
    }
    if (too_deep_) {
      return Error{Code::kUnsupported,
                   fmt::format("write NCCL XML: PCI devices nested more than {} "
                               "levels deep",
                               kMostDepth)};
    }
    return std::move(out_);
  }

 private:
  void open(int depth, std::string_view name, const Attributes& attributes, bool empty) {
    out_ += fmt::format("{:{}}<{}", "", depth * 2, name);
    for (const auto& [key, value] : attributes) {
      out_ += fmt::format(" {}=\"{}\"", key, escaped(value));
    }
    out_ += empty ? "/>\n" : ">\n";
  }

  void cpu(NodeId numa) {
    Attributes attributes{{"numaid", std::to_string(graph_[numa].index)}};
    facts(numa, "cpu", attributes);
    const auto hosts = graph_.all(NodeKind::kHost);
    if (hosts.size() > 1 && !graph_[numa].facts.contains("host_hash")) {
      attributes.emplace_back("host_hash", fmt::format("0x{:x}", graph_[numa].host.value + 1));
    }
    open(1, "cpu", attributes, false);
    visited_[numa.value] = true;
    below(numa, 2);
    for (const Adjacency::Edge& edge : next_to_.from(numa)) {
      // A GPU that only C2C joins to its processor has an address on PCI all the same.
      const Link& link = graph_.links[edge.link];
      const bool only = link.kind == LinkKind::kC2c && graph_[edge.to].kind == NodeKind::kGpu &&
                        !visited_[edge.to.value] && !on_pci(edge.to);
      if (!only) continue;
      visited_[edge.to.value] = true;
      device(edge.to, link, 2);
    }
    close(1, "cpu");
  }

  void below(NodeId node, int depth) {
    // Levels of a graph are of strangers' making too, and this recurses.
    if (depth > kMostDepth) {
      too_deep_ = true;
      return;
    }
    for (const Adjacency::Edge& edge : next_to_.from(node)) {
      const Link& link = graph_.links[edge.link];
      const NodeKind kind = graph_[edge.to].kind;
      const bool pcie = link.kind == LinkKind::kPcie;
      if ((!pcie && link.kind != LinkKind::kInternal) || !below_pci(kind)) continue;
      if (visited_[edge.to.value]) continue;
      const bool switches_only = !pcie && kind == NodeKind::kPcieSwitch;
      if (switches_only && graph_[node].kind == NodeKind::kPcieSwitch) continue;  // A pcilink.
      visited_[edge.to.value] = true;
      if (kind == NodeKind::kPciePort && leads_on(edge.to)) {
        // A port counts as a level, so that chains of ports end too; only blanks differ.
        below(edge.to, depth + 1);
      } else if (kind == NodeKind::kNic && !pcie) {
        open(depth, "nic", {}, false);
        net(edge.to, depth + 1);
        close(depth, "nic");
      } else if (pcie || kind == NodeKind::kGpu) {
        device(edge.to, link, depth);
      }
    }
  }

  void device(NodeId node, const Link& link, int depth) {
    if (graph_[node].bus.empty() && no_address_.empty()) no_address_ = graph_[node].name;
    const std::size_t start = out_.size();
    const Attributes attributes = pci(node, link);
    open(depth, "pci", attributes, false);
    const std::size_t inside = out_.size();
    if (graph_[node].kind == NodeKind::kGpu) gpu(node, depth + 1);
    const bool nic = graph_[node].kind == NodeKind::kNic || graph_[node].kind == NodeKind::kCard;
    if (const auto ports = nic ? ports_of(node) : std::vector<NodeId>{}; !ports.empty()) {
      open(depth + 1, "nic", {}, false);
      for (const NodeId port : ports) {
        visited_[port.value] = true;
        net(port, depth + 2);
      }
      close(depth + 1, "nic");
    }
    for (const Adjacency::Edge& edge : next_to_.from(node)) {
      const NodeKind kind = graph_[edge.to].kind;
      if (graph_.links[edge.link].kind == LinkKind::kInternal && edge.forward &&
          kind == NodeKind::kPcieSwitch && graph_[node].kind == NodeKind::kPcieSwitch) {
        open(depth + 1, "pcilink", {{"target", graph_[edge.to].bus}}, true);
      }
    }
    below(node, depth + 1);
    if (out_.size() == inside) {
      out_.resize(start);
      open(depth, "pci", attributes, true);
      return;
    }
    close(depth, "pci");
  }

  void gpu(NodeId node, int depth) {
    Attributes attributes;
    if (graph_[node].index >= 0) attributes.emplace_back("dev", std::to_string(graph_[node].index));
    facts(node, "gpu", attributes);
    const std::size_t start = out_.size();
    open(depth, "gpu", attributes, false);
    const std::size_t inside = out_.size();
    peers(node, depth + 1);
    if (out_.size() == inside) {
      out_.resize(start);
      if (!attributes.empty()) open(depth, "gpu", attributes, true);
      return;
    }
    close(depth, "gpu");
  }

  void peers(NodeId node, int depth) {
    for (const Adjacency::Edge& edge : next_to_.from(node)) {
      const Link& link = graph_.links[edge.link];
      const Node& peer = graph_[edge.to];
      if (link.kind == LinkKind::kC2c && peer.kind == NodeKind::kNuma && link.forward.value > 0) {
        const double each = link.forward.value * 1000 / link.count;
        open(depth, "c2c",
             {{"bw", std::to_string(std::llround(each))}, {"count", std::to_string(link.count)}},
             true);
      }
      if (!is_fast(link.kind)) continue;
      // Links of this direction: their share of the bandwidth, as all are equal.
      const double most = std::max(link.forward.value, link.backward.value);
      const double own = edge.forward ? link.forward.value : link.backward.value;
      const long count = most > 0 ? std::lround(link.count * own / most) : link.count;
      if (count == 0) continue;
      std::string target = peer.bus, type;
      if (peer.kind == NodeKind::kNvSwitch) {
        target = fact(edge.to, "target", peer.bus.empty() ? "fffffff:ffff:ff" : peer.bus);
        type = fact(edge.to, "class", "0x068000");
      } else if (peer.kind == NodeKind::kNuma || peer.kind == NodeKind::kPackage) {
        target = fact(node, "cpu_target", "ffffffff:ffff:ff.0");
        type = "0x068001";
      } else {
        type = fact(node, "tclass", fact(edge.to, "class", "0x030200"));
      }
      Attributes attributes{{"target", std::move(target)}, {"count", std::to_string(count)}};
      if (!type.empty()) attributes.emplace_back("tclass", type);
      open(depth, to_string(link.kind), attributes, true);
    }
  }

  void net(NodeId node, int depth) {
    Attributes attributes;
    if (!graph_[node].facts.contains("name")) attributes.emplace_back("name", local_name(node));
    if (graph_[node].index >= 0) attributes.emplace_back("dev", std::to_string(graph_[node].index));
    std::string speed = fact(node, "speed_mbps");
    for (const Adjacency::Edge& edge : next_to_.from(node)) {
      const Quantity& rate = bandwidth(graph_, edge);
      if (graph_.links[edge.link].kind == LinkKind::kPort && speed.empty() && rate.known()) {
        speed = std::to_string(std::llround(rate.value * 8000));
      }
    }
    if (!speed.empty()) attributes.emplace_back("speed", speed);
    facts(node, "net", attributes);
    open(depth, "net", attributes, true);
  }

  Attributes pci(NodeId node, const Link& link) const {
    const Node& at = graph_[node];
    std::string_view type = "0x060400";
    if (at.kind == NodeKind::kGpu) type = "0x030200";
    if (at.kind == NodeKind::kNic || at.kind == NodeKind::kCard) type = "0x020000";
    Attributes attributes{{"busid", fact(node, "busid", at.bus)}};
    // What had no class in a file gets none; a switch or device of a probe does.
    const bool unknown = at.kind == NodeKind::kPciePort;
    if (const std::string text = fact(node, "class", unknown ? "" : std::string(type));
        !text.empty()) {
      attributes.emplace_back("class", text);
    }
    std::string speed, width;
    const bool assumed = link.forward.origin == Origin::kAssumed;
    if (link.pcie && !assumed) {
      const PcieRate& rate = link.pcie->maximum.known() ? link.pcie->maximum : link.pcie->current;
      if (rate.known()) {
        speed = fmt::format("{} GT/s", rate.gigatransfers);
        width = std::to_string(rate.width);
      }
    }
    for (const std::string_view key : kPciFacts) {
      std::string value = fact(node, std::string(key));
      if (value.empty() && key == "link_speed") value = speed;
      if (value.empty() && key == "link_width") value = width;
      if (!value.empty() || at.facts.contains(std::string(key))) {
        attributes.emplace_back(key, std::move(value));
      }
    }
    for (const auto& [key, value] : at.facts) {
      if (key.starts_with("pci_")) attributes.emplace_back(key.substr(4), value);
    }
    return attributes;
  }

  /// The facts that are attributes: NCCL's own, and those of others that a file had.
  void facts(NodeId node, std::string_view element, Attributes& attributes) const {
    for (const auto& [key, value] : graph_[node].facts) {
      if (nccl_knows_attribute(element, key)) attributes.emplace_back(key, value);
      if (key.starts_with("xml_")) attributes.emplace_back(key.substr(4), value);
    }
  }

  std::string fact(NodeId node, const std::string& key, const std::string& otherwise = "") const {
    const auto at = graph_[node].facts.find(key);
    return at == graph_[node].facts.end() ? otherwise : at->second;
  }
  // The end of an element that is not empty.
  void close(int depth, std::string_view name) {
    out_ += fmt::format("{:{}}</{}>\n", "", depth * 2, name);
  }
  std::string local_name(NodeId node) const {
    const std::string& name = graph_[node].name;
    return name.substr(std::min(name.find('/') + 1, name.size()));
  }

  std::vector<NodeId> ports_of(NodeId node) const {
    if (graph_[node].kind == NodeKind::kNic) {
      // A function of which only the class is known has the name of its address.
      const bool bare = local_name(node) == "nic" + graph_[node].bus && graph_[node].index < 0;
      return bare ? std::vector<NodeId>{} : std::vector{node};
    }
    std::vector<NodeId> ports;
    for (const Adjacency::Edge& edge : next_to_.from(node)) {
      if (graph_[edge.to].kind == NodeKind::kNic && !visited_[edge.to.value] &&
          graph_.links[edge.link].kind == LinkKind::kInternal) {
        ports.push_back(edge.to);
      }
    }
    return ports;
  }

  bool on_pci(NodeId node) const {
    const auto& edges = next_to_.from(node);
    return std::any_of(edges.begin(), edges.end(), [&](const Adjacency::Edge& edge) {
      const LinkKind kind = graph_.links[edge.link].kind;
      return kind == LinkKind::kPcie || kind == LinkKind::kInternal;
    });
  }

  /// The first GPU that was not written; none: all were.
  NodeId first_lost() const {
    for (const NodeId gpu : graph_.all(NodeKind::kGpu)) {
      if (!visited_[gpu.value]) return gpu;
    }
    return {};
  }

  /// Whether anything of PCI hangs on a port that was not visited yet.
  bool leads_on(NodeId node) const {
    const auto& edges = next_to_.from(node);
    return std::any_of(edges.begin(), edges.end(), [&](const Adjacency::Edge& edge) {
      return below_pci(graph_[edge.to].kind) && !visited_[edge.to.value];
    });
  }

  const Graph& graph_;
  const Adjacency next_to_;
  std::vector<bool> visited_;
  std::string out_;
  std::string no_address_;  // The first device without one.
  bool too_deep_ = false;
};

}  // namespace

Result<std::string> write_nccl_xml(const Graph& graph) { return Writer(graph).write(); }

}  // namespace tutti::topology
