// File: topology/render/host.cc: one host drawn whole: its PCI Express tree from the CPUs down to a
// row of GPUs and NICs, NVSwitches below. See parts.h.
#include <fmt/format.h>

#include <algorithm>

#include "topology/render/parts.h"

namespace tutti::topology {
namespace {

constexpr double kMargin = 14, kTop = 52, kRow = 30, kRowGap = 26, kGap = 8;
constexpr double kSumHeight = 18;  // Below GPUs and NICs: what they have in all.

bool is_device(const Node& node) {
  return node.kind == NodeKind::kGpu || node.kind == NodeKind::kNic;
}

std::string label(const Node& node) {
  if (node.kind == NodeKind::kPcieSwitch) return "PCIe switch";
  return shortened(node.name.substr(node.name.rfind('/') + 1), 18);
}

// The width of a node's box, so that its name fits; ports are dots.
double own_width(const Node& node) {
  if (node.kind == NodeKind::kPciePort) return 8;
  return std::max(58.0, width_of(label(node), 10) + 12);
}

// Whether links of this kind make the tree inside a host.
bool in_tree(LinkKind kind, bool c2c) {
  return kind == LinkKind::kInternal || kind == LinkKind::kPcie || (c2c && kind == LinkKind::kC2c);
}

// GB/s and connections that leave a node by links of the kinds.
struct Sum {
  double gbs = 0;
  LinkKind kind = LinkKind::kNvlink;
};
Sum sum_of(const Picture& picture, NodeId node) {
  Sum sum;
  for (const auto& edge : picture.adjacency.from(node)) {
    const LinkKind kind = picture.graph.links[edge.link].kind;
    if (!is_fast(kind) && kind != LinkKind::kPort) continue;
    sum.kind = kind;
    sum.gbs += bandwidth(picture.graph, edge).value;
  }
  return sum;
}

}  // namespace

void Picture::anchor(NodeId node, const Box& box) {
  anchor_of[node.value] = static_cast<int>(anchors.size());
  anchors.push_back({box, false});
}

void Picture::node(NodeId node, const Box& box) {
  const Node& what = graph[node];
  const bool port = what.kind == NodeKind::kPciePort;
  anchor(node, box);
  scene.box(box, colour(what.kind), "#64748b", title_of(graph, what), port ? 2 : 5);
  if (!port) scene.text({box.middle(), box.y + box.height / 2 + 3.5}, label(what));
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
  grow(graph, adjacency, packages, false);
  grow(graph, adjacency, numa, false);
  grow(graph, adjacency, {}, true);
  // What hangs on nothing is a root of its own; bridges first, for they may have things below.
  std::stable_sort(rest.begin(), rest.end(),
                   [&](NodeId a, NodeId b) { return graph[a].kind < graph[b].kind; });
  for (const NodeId node : rest) grow(graph, adjacency, {node}, false);
  place(graph);
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
    if (node.kind != NodeKind::kPciePort) height = kRow;
    item.own = own_width(node);
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
    const double height = graph[item.node].kind == NodeKind::kPciePort ? 8 : kRow;
    item.box = {left[i] + (width - item.own) / 2, tops[row] + (heights[row] - height) / 2, item.own,
                height};
  }
  height_ = tops.back() - kRowGap + kSumHeight + kMargin;
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
  if (direct) height_ += 24 + std::min(150.0, width_ * 0.09);
  if (switches_.empty()) return;
  const double share = (width_ - 2 * kMargin) / static_cast<double>(switches_.size());
  const double least = 11 * 10 * kGlyph + 12 + kGap;  // "nvswitch12"
  const double each = std::max(share, least);
  width_ = std::max(width_, each * static_cast<double>(switches_.size()) + 2 * kMargin);
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    Item& item = switches_[i];
    const double width = std::clamp(each * 0.7, own_width(graph[item.node]), 150.0);
    const double middle = kMargin + each * (static_cast<double>(i) + 0.5);
    item.box = {middle - width / 2, height_ + 60, width, kRow};
  }
  height_ += 60 + kRow + kMargin + (across ? 70 : 10);
}

void HostPicture::draw_item(Picture& picture, const Item& item, double left, double top) const {
  Box box = item.box;
  box.x += left;
  box.y += top;
  picture.node(item.node, box);
  if (item.parent < 0) return;
  picture.drawn[item.link] = true;
  const Link& link = picture.graph.links[item.link];
  const Box& above = items_[static_cast<std::size_t>(item.parent)].box;
  const double x0 = above.middle() + left, y0 = above.bottom() + top, x1 = box.middle(), y1 = box.y;
  const double bend = std::min((y1 - y0) / 2, 16.0);
  picture.scene.line(fmt::format("M{:.1f} {:.1f}C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}L{:.1f} "
                                 "{:.1f}",
                                 x0, y0, x0, y0 + bend, x1, y0 + bend, x1, y0 + 2 * bend, x1, y1),
                     {colour(link.kind), stroke_width(link.kind, link.forward.value)},
                     title_of(picture.graph, link));
  const std::string words = rate_text(link.forward.value);
  const double width = width_of(words, 9);
  if (link.kind == LinkKind::kInternal || !link.forward.known() || width > item.own) return;
  picture.scene.text({x1, y1 - 8, 9, "#475569"}, words);
}

void HostPicture::draw_sums(Picture& picture, const Item& item, double left, double top) const {
  if (!is_device(picture.graph[item.node]) || item.children > 0) return;
  const Sum sum = sum_of(picture, item.node);
  const std::string words = rate_text(sum.gbs);
  if (sum.gbs <= 0 || width_of(words, 9) > item.own + kGap) return;
  picture.scene.text({left + item.box.middle(), top + item.box.bottom() + 12, 9, colour(sum.kind)},
                     words);
}

void HostPicture::draw(Picture& picture, double left, double top) const {
  const Node& host = picture.graph[host_];
  picture.anchor(host_, {left, top, width_, height_});
  picture.scene.frame({left, top, width_, height_}, title_of(picture.graph, host));
  picture.scene.text({left + kMargin, top + 20, 14, "#0f172a", true, true},
                     shortened(host.name, 40));
  for (const Item& item : items_) {
    draw_item(picture, item, left, top);
    draw_sums(picture, item, left, top);
  }
  for (const Item& item : switches_) draw_item(picture, item, left, top);
}

}  // namespace tutti::topology
