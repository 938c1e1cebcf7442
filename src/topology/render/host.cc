// File: topology/render/host.cc: one host drawn whole: its PCI Express tree from the CPUs down to a
// row of GPUs and NICs, NVSwitches below. See parts.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "topology/render/parts.h"

namespace tutti::topology {
namespace {

constexpr double kMargin = 14, kTop = 52, kRow = 30, kRowGap = 40, kGap = 8;
constexpr double kSmall = 8, kLine = 11;  // Below a name: size and height of what else is said.
constexpr std::size_t kMostNics = 16;     // A host with more: those that are alike are one box.

bool is_device(const Node& node) {
  return node.kind == NodeKind::kGpu || node.kind == NodeKind::kNic;
}

std::string label(const Node& node) {
  if (node.kind == NodeKind::kPcieSwitch) return "PCIe switch";
  return shortened(node.name.substr(node.name.rfind('/') + 1), 18);
}

// The width of a node's box, so that its texts fit; ports are dots.
double own_width(const Node& node, const std::string& name,
                 const std::vector<std::string>& details) {
  if (node.kind == NodeKind::kPciePort) return 8;
  double width = std::max(58.0, width_of(name, 10) + 12);
  for (const std::string& line : details) width = std::max(width, width_of(line, kSmall) + 8);
  return width;
}

// Whether links of this kind make the tree inside a host.
bool in_tree(LinkKind kind, bool c2c) {
  return kind == LinkKind::kInternal || kind == LinkKind::kPcie || (c2c && kind == LinkKind::kC2c);
}

// GB/s and connections that leave a node by links of a kind.
struct Sum {
  double gbs = 0;
  int count = 0;
};
Sum sum_of(const Graph& graph, const Adjacency& adjacency, NodeId node, LinkKind kind) {
  Sum sum;
  for (const auto& edge : adjacency.from(node)) {
    if (graph.links[edge.link].kind != kind) continue;
    sum.count += graph.links[edge.link].count;
    sum.gbs += bandwidth(graph, edge).value;
  }
  return sum;
}

// What a GPU's or a NIC's box says below its name: the model; all its NVLinks; its ports.
std::vector<std::string> details_of(const Graph& graph, const Adjacency& adjacency, NodeId node) {
  std::vector<std::string> details;
  if (!is_device(graph[node])) return details;
  std::string model = graph[node].kind == NodeKind::kGpu ? fact(graph[node], "model") : "";
  if (model.starts_with("NVIDIA ")) model.erase(0, 7);
  if (!model.empty()) details.push_back(shortened(model, 14));
  for (const auto& [kind, word] :
       {std::pair(LinkKind::kNvlink, "NV{} "), std::pair(LinkKind::kXgmi, "XGMI{} "),
        std::pair(LinkKind::kPort, "")}) {
    const Sum sum = sum_of(graph, adjacency, node, kind);
    if (sum.gbs > 0)
      details.push_back(fmt::format(fmt::runtime(word), sum.count) + rate_text(sum.gbs));
  }
  return details;
}

// "Gen5 x16"; "" where it is not known.
std::string generation_of(const Link& link) {
  if (!link.pcie) return {};
  const PcieRate& rate = link.pcie->current.known() ? link.pcie->current : link.pcie->maximum;
  constexpr double kRates[] = {2.5, 5, 8, 16, 32, 64};
  const auto* const at = std::find(std::begin(kRates), std::end(kRates), rate.gigatransfers);
  if (at == std::end(kRates)) return {};
  return fmt::format("Gen{} x{}", at - std::begin(kRates) + 1, rate.width);
}

// What makes NICs alike: where they hang, what they carry to there and out. A port of one NIC is
// passed over.
using Alike = std::tuple<NodeId, double, double>;
std::optional<Alike> likeness(const Graph& graph, const Adjacency& adjacency, NodeId nic,
                              NodeId& port) {
  const auto up = [&](NodeId node, NodeId below) -> const Adjacency::Edge* {
    const Adjacency::Edge* found = nullptr;
    for (const auto& edge : adjacency.from(node)) {
      if (!in_tree(graph.links[edge.link].kind, false) || edge.to == below) continue;
      if (found != nullptr) return nullptr;
      found = &edge;
    }
    return found;
  };
  const Adjacency::Edge* edge = up(nic, {});
  if (edge == nullptr) return std::nullopt;
  const double rate = bandwidth(graph, *edge).value;
  if (graph[edge->to].kind == NodeKind::kPciePort) {
    port = edge->to;
    edge = up(port, nic);
    if (edge == nullptr) return std::nullopt;  // Several hang on it.
  }
  return Alike{edge->to, rate, sum_of(graph, adjacency, nic, LinkKind::kPort).gbs};
}

}  // namespace

void Picture::anchor(NodeId node, const Box& box) {
  anchor_of[node.value] = static_cast<int>(anchors.size());
  anchors.push_back({box, false});
}

void Picture::node(NodeId node, const Box& box, const std::string& name,
                   const std::vector<std::string>& details) {
  const Node& what = graph[node];
  const bool port = what.kind == NodeKind::kPciePort;
  anchor(node, box);
  scene.box(box, colour(what.kind), "#64748b", title_of(graph, what), port ? 2 : 5);
  if (port) return;
  const double lines = kLine * static_cast<double>(details.size());
  double y = box.y + (box.height - lines) / 2 + 3.5;
  scene.text({box.middle(), y}, name);
  for (const std::string& line : details)
    scene.text({box.middle(), y += kLine, kSmall, "#475569"}, line);
}

HostPicture::HostPicture(const Graph& graph, const Adjacency& adjacency, NodeId host,
                         std::vector<NodeId> members)
    : host_(host), members_(std::move(members)) {
  std::vector<NodeId> packages, numa, rest;
  for (const NodeId member : members_) {
    const NodeKind kind = graph[member].kind;
    if (kind == NodeKind::kNvSwitch) {
      switches_.push_back({.node = member});
    } else {
      (kind == NodeKind::kPackage ? packages
       : kind == NodeKind::kNuma  ? numa
                                  : rest)
          .push_back(member);
    }
  }
  fold(graph, adjacency);
  grow(graph, adjacency, packages, false);
  grow(graph, adjacency, numa, false);
  grow(graph, adjacency, {}, true);
  // What hangs on nothing is a root of its own; bridges first, for they may have things below.
  std::stable_sort(rest.begin(), rest.end(),
                   [&](NodeId a, NodeId b) { return graph[a].kind < graph[b].kind; });
  for (const NodeId node : rest) grow(graph, adjacency, {node}, false);
  for (Item& item : items_) {
    item.name = label(graph[item.node]);
    if (item.children == 0) item.details = details_of(graph, adjacency, item.node);
    const auto others = folded_.find(item.node);
    if (others == folded_.end()) continue;
    item.name = fmt::format("{} x {}", others->second.size() + 1, item.name);
    for (std::string& line : item.details) line += " each";
  }
  for (Item& item : switches_) item.name = label(graph[item.node]);
  place(graph);
}

// Many NICs: those that are alike are drawn as the first of them, and so are their ports.
void HostPicture::fold(const Graph& graph, const Adjacency& adjacency) {
  std::vector<NodeId> nics;
  for (const NodeId member : members_) {
    if (graph[member].kind == NodeKind::kNic) nics.push_back(member);
  }
  if (nics.size() <= kMostNics) return;
  std::map<Alike, NodeId> first;
  for (const NodeId nic : nics) {
    NodeId port;
    const auto alike = likeness(graph, adjacency, nic, port);
    if (!alike) continue;
    const auto [at, fresh] = first.try_emplace(*alike, nic);
    if (fresh) continue;
    folded_[at->second].push_back(nic);
    seen_.insert(nic);
    if (port.exists()) seen_.insert(port);
  }
}

// Adds the roots and all below them, breadth first, so that parents come before their children.
void HostPicture::grow(const Graph& graph, const Adjacency& adjacency,
                       const std::vector<NodeId>& roots, bool c2c) {
  std::size_t next = c2c ? 0 : items_.size();
  for (const NodeId root : roots) {
    if (seen_.insert(root).second) items_.push_back({.node = root});
  }
  for (; next < items_.size(); ++next) {
    const NodeId node = items_[next].node;
    if (is_device(graph[node])) continue;
    for (const auto& edge : adjacency.from(node)) {
      const NodeKind kind = graph[edge.to].kind;
      if (graph[edge.to].host != host_ || kind == NodeKind::kNvSwitch) continue;
      if (!in_tree(graph.links[edge.link].kind, c2c) || !seen_.insert(edge.to).second) continue;
      items_.push_back({.node = edge.to,
                        .parent = static_cast<int>(next),
                        .link = edge.link,
                        .depth = items_[next].depth + 1});
      ++items_[next].children;
    }
  }
}

void HostPicture::place(const Graph& graph) {
  int deepest = 0;
  for (const Item& item : items_) deepest = std::max(deepest, item.depth);
  std::vector<double> heights(static_cast<std::size_t>(deepest) + 1, 8);
  double roots = 0;
  for (std::size_t i = items_.size(); i-- > 0;) {
    Item& item = items_[i];
    const Node& node = graph[item.node];
    if (is_device(node) && item.children == 0) item.depth = deepest;
    double& height = heights[static_cast<std::size_t>(item.depth)];
    if (node.kind != NodeKind::kPciePort)
      height = std::max(height, kRow + kLine * static_cast<double>(item.details.size()));
    item.own = own_width(node, item.name, item.details);
    double& above = item.parent < 0 ? roots : items_[static_cast<std::size_t>(item.parent)].below;
    above += std::max(item.own + kGap, item.below);
  }
  const double head = width_of(graph[host_].name, 14) + 2 * kMargin;
  width_ = std::max({roots + 2 * kMargin, head, 170.0});
  std::vector<double> tops{kTop};
  for (const double height : heights) tops.push_back(tops.back() + height + kRowGap);

  std::vector<double> used(items_.size());  // Used width below each, from its left end.
  std::vector<double> left(items_.size());
  double root_used = (width_ - roots) / 2;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    Item& item = items_[i];
    const double width = std::max(item.own + kGap, item.below);
    const std::size_t parent = static_cast<std::size_t>(item.parent);
    if (item.parent < 0) {
      left[i] = root_used;
      root_used += width;
    } else {
      left[i] = left[parent] + used[parent];
      used[parent] += width;
    }
    used[i] = (width - item.below) / 2;
    const std::size_t row = static_cast<std::size_t>(item.depth);
    const double height = graph[item.node].kind == NodeKind::kPciePort ? 8
                          : is_device(graph[item.node])                ? heights[row]
                                                                       : kRow;
    item.box = {left[i] + (width - item.own) / 2, tops[row] + (heights[row] - height) / 2, item.own,
                height};
  }
  height_ = tops.back() - kRowGap + kMargin;
  place_switches(graph);
}

// Below the devices: a row of NVSwitches, or room for the arcs of direct links.
void HostPicture::place_switches(const Graph& graph) {
  bool direct = false, across = false;
  for (const Link& link : graph.links) {
    if (graph[link.a].host != host_ || graph[link.b].host != host_) continue;
    if (!is_fast(link.kind)) continue;
    const int switches = (graph[link.a].kind == NodeKind::kNvSwitch ? 1 : 0) +
                         (graph[link.b].kind == NodeKind::kNvSwitch ? 1 : 0);
    direct = direct || switches == 0;
    across = across || switches == 2;
  }
  if (direct) height_ += std::min(150.0, 20 + width_ * 0.15);  // The deepest arc (links.cc).
  if (switches_.empty()) return;
  double own = 0;
  for (const Item& item : switches_)
    own = std::max(own, own_width(graph[item.node], item.name, {}));
  const auto count = static_cast<double>(switches_.size());
  width_ = std::max(width_, count * (own + kGap) + 2 * kMargin);
  const double each = (width_ - 2 * kMargin) / count;
  std::vector<Gap> gaps = gaps_between_nics(graph);
  double room = 0;
  for (const Gap& gap : gaps) room += gap.room(own + kGap);
  if (room < count) gaps = {{kMargin, width_ - kMargin, {}}};  // Lines of NICs pass behind.
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    const double wish = kMargin + each * (static_cast<double>(i) + 0.5);
    Gap* best = nullptr;
    for (Gap& gap : gaps) {
      const bool fits = gap.room(own + kGap) >= static_cast<double>(gap.switches.size() + 1);
      if (fits && (best == nullptr || gap.far_from(wish) < best->far_from(wish))) best = &gap;
    }
    best->switches.push_back(i);
  }
  for (const Gap& gap : gaps) {
    const double part = (gap.right - gap.left) / static_cast<double>(gap.switches.size());
    const double width = std::clamp(part * 0.7, own, 150.0);
    for (std::size_t k = 0; k < gap.switches.size(); ++k) {
      const double middle = gap.left + part * (static_cast<double>(k) + 0.5);
      switches_[gap.switches[k]].box = {middle - width / 2, height_ + 60, width, kRow};
    }
  }
  height_ += 60 + kRow + kMargin + (across ? 70 : 10);
}

// Between the lines that lead down from NICs.
std::vector<HostPicture::Gap> HostPicture::gaps_between_nics(const Graph& graph) const {
  std::vector<double> middles;
  for (const Item& item : items_) {
    if (graph[item.node].kind == NodeKind::kNic) middles.push_back(item.box.middle());
  }
  std::sort(middles.begin(), middles.end());
  middles.push_back(width_ - kMargin);
  std::vector<Gap> gaps;
  double left = kMargin;
  for (const double middle : middles) {
    gaps.push_back({left + kGap, middle - kGap, {}});
    left = middle;
  }
  return gaps;
}

void HostPicture::draw_item(Picture& picture, const Item& item, double left, double top) const {
  Box box = item.box;
  box.x += left;
  box.y += top;
  picture.node(item.node, box, item.name, item.details);
  draw_folded(picture, item.node);
  if (item.parent < 0) return;
  picture.drawn[item.link] = true;
  const Link& link = picture.graph.links[item.link];
  const Box& above = items_[static_cast<std::size_t>(item.parent)].box;
  const double x0 = above.middle() + left, y0 = above.bottom() + top, x1 = box.middle(), y1 = box.y;
  const double bend = std::min((y1 - y0) / 2, 9.0);
  picture.scene.line(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}L{:.1f} "
                                 "{:.1f}",
                                 x0, y0, x0, y0 + bend, x1, y0 + bend, x1, y0 + 2 * bend, x1, y1),
                     {colour(link.kind), stroke_width(link.kind, link.forward.value)},
                     title_of(picture.graph, link));
  if (link.kind == LinkKind::kInternal) return;
  double y = y1 - 5;
  for (const std::string& words :
       {link.forward.known() ? rate_text(link.forward.value) : "", generation_of(link)}) {
    if (words.empty() || width_of(words, kSmall) + 10 > item.own + kGap) continue;
    picture.scene.text({x1 + 5, y, kSmall, "#475569", false, true}, words);
    y -= kLine;
  }
}

// The others of NICs that are alike are where the first is, and so are their links.
void HostPicture::draw_folded(Picture& picture, NodeId first) const {
  const auto others = folded_.find(first);
  if (others == folded_.end()) return;
  for (const NodeId nic : others->second) {
    picture.anchor_of[nic.value] = picture.anchor_of[first.value];
    for (const auto& edge : picture.adjacency.from(nic)) {
      if (in_tree(picture.graph.links[edge.link].kind, false)) picture.drawn[edge.link] = true;
    }
  }
}

void HostPicture::draw(Picture& picture, double left, double top) const {
  const Node& host = picture.graph[host_];
  picture.anchor(host_, {left, top, width_, height_});
  picture.scene.frame({left, top, width_, height_}, title_of(picture.graph, host));
  picture.scene.text({left + kMargin, top + 20, 14, "#0f172a", true, true},
                     shortened(host.name, 40));
  for (const Item& item : items_) draw_item(picture, item, left, top);
  for (const Item& item : switches_) draw_item(picture, item, left, top);
}

}  // namespace tutti::topology
