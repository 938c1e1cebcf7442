// File: topology/render/svg.cc: the picture of a graph: which hosts are drawn whole, where all is,
// the networks below, the legend. See render.h and parts.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "topology/graph/words.h"
#include "topology/render/parts.h"
#include "topology/render/render.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostWhole = 2, kMostKinds = 4, kMostWholeNodes = 64, kMostSmall = 256,
                      kMostNamed = 16;
constexpr std::size_t kMostCells = 512;
constexpr double kEdge = 24, kHead = 62, kSpace = 28, kApart = 78;

using Counts = std::map<NodeKind, std::size_t>;

std::string words_of(const Counts& counts, std::string_view between) {
  std::string out;
  for (const auto& [kind, count] : counts) {
    if (kind == NodeKind::kPciePort) continue;
    const std::string_view word = people_word(kind);
    const char* const plural = word.ends_with("ch") ? "es" : "s";
    append(out, fmt::format("{} {}{}", count, word, count == 1 ? "" : plural), between);
  }
  return out;
}

struct Hosts {
  std::vector<NodeId> all;
  std::map<NodeId, std::vector<NodeId>> members;
  std::vector<NodeId> whole, small;
};

Counts counts_of(const Graph& graph, const std::vector<NodeId>& nodes) {
  Counts counts;
  for (const NodeId node : nodes) ++counts[graph[node].kind];
  return counts;
}

Hosts sort_hosts(const Graph& graph) {
  Hosts hosts;
  hosts.all = graph.all(NodeKind::kHost);
  for (const NodeId host : hosts.all) hosts.members[host];
  for (const NodeId node : graph.all()) {
    if (graph[node].host.exists()) hosts.members[graph[node].host].push_back(node);
  }
  if (hosts.all.size() <= kMostWhole || graph.nodes.size() <= kMostWholeNodes) {
    hosts.whole = hosts.all;
    return hosts;
  }
  std::set<Counts> kinds;
  for (const NodeId host : hosts.all) {
    const bool fresh =
        kinds.size() < kMostKinds && kinds.insert(counts_of(graph, hosts.members[host])).second;
    (fresh ? hosts.whole : hosts.small).push_back(host);
  }
  return hosts;
}

// Hosts that are not drawn whole: a panel of small boxes, and one anchor for all in it.
Box draw_small(Picture& picture, const Hosts& hosts, double left, double top, double height) {
  constexpr double kWidth = 112, kHeight = 44, kGap = 8, kTitle = 34;
  const std::size_t shown = std::min(hosts.small.size(), kMostSmall);
  const double fit = std::max(1.0, std::floor((height - kTitle) / (kHeight + kGap)));
  const double square = std::ceil(std::sqrt(static_cast<double>(shown)));
  const auto rows = static_cast<std::size_t>(std::max(fit, square));
  const std::size_t columns = (shown + rows - 1) / rows;
  std::string heading = fmt::format("{} more", hosts.small.size());
  if (shown < hosts.small.size()) heading += fmt::format(", {} shown", shown);
  Box panel{left, top, std::max(static_cast<double>(columns) * (kWidth + kGap) + 20, 190.0),
            std::max(height, kTitle + static_cast<double>(rows) * (kHeight + kGap) + 8)};
  picture.scene.frame(panel, heading);
  picture.scene.text({left + 14, top + 20, 14, "#0f172a", true, true}, heading);
  const int anchor = static_cast<int>(picture.anchors.size());
  picture.anchors.push_back({panel, true});
  for (std::size_t i = 0; i < hosts.small.size(); ++i) {
    const std::vector<NodeId>& members = hosts.members.at(hosts.small[i]);
    for (const NodeId node : members) picture.anchor_of[node.value] = anchor;
    if (i >= shown) continue;
    const std::size_t row = i / columns;
    Counts counts = counts_of(picture.graph, members);
    const Node& host = picture.graph[hosts.small[i]];
    const Box box{left + 10 + static_cast<double>(i % columns) * (kWidth + kGap),
                  top + kTitle + static_cast<double>(row) * (kHeight + kGap), kWidth, kHeight};
    picture.scene.box(box, "#ffffff", "#94a3b8",
                      title_of(picture.graph, host) + "\n" + words_of(counts, "\n"));
    picture.scene.text({box.middle(), box.y + 18, 10, "#0f172a", true}, shortened(host.name, 16));
    picture.scene.text(
        {box.middle(), box.y + 34, 9},
        shortened(fmt::format("{} GPU {} NIC", counts[NodeKind::kGpu], counts[NodeKind::kNic]),
                  18));
  }
  return panel;
}

// A row of nodes that are in no host. Few: boxes with names, and a link each. Many: a bar of cells
// that shares an anchor. Returns the height.
double draw_row(Picture& picture, const std::vector<NodeId>& nodes, double top, double width) {
  const double each = (width - 2 * kEdge) / static_cast<double>(nodes.size());
  if (nodes.size() <= kMostNamed && each >= 110) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const std::string& name = picture.graph[nodes[i]].name;
      const double text = width_of(name, 10) + 16;
      const double wide = std::min(each - 10, std::max(text, 100.0));
      const double middle = kEdge + each * (static_cast<double>(i) + 0.5);
      const Box box{middle - wide / 2, top, wide, 30};
      picture.anchor(nodes[i], box);
      const Node& node = picture.graph[nodes[i]];
      picture.scene.box(box, colour(node.kind), "#64748b", title_of(picture.graph, node));
      const auto most = static_cast<std::size_t>((wide - 8) / 10 / kGlyph);
      picture.scene.text({middle, top + 19}, shortened(name, most));
    }
    return 30;
  }
  constexpr double kTitle = 22, kSide = 16;
  const std::size_t shown = std::min(nodes.size(), kMostCells);
  const double room = width - 2 * kEdge - 16;
  const double pitch = std::clamp(room / static_cast<double>(shown), kSide + 4, 80.0);
  const auto columns = static_cast<std::size_t>(std::max(1.0, room / pitch));
  const double rows = std::ceil(static_cast<double>(shown) / static_cast<double>(columns));
  const Box bar{kEdge, top, width - 2 * kEdge, kTitle + rows * (kSide + 4) + 8};
  const std::string words = words_of(counts_of(picture.graph, nodes), ", ");
  picture.scene.frame(bar, words);
  picture.scene.text({kEdge + 10, top + 15, 11, "#0f172a", true, true}, words);
  const int anchor = static_cast<int>(picture.anchors.size());
  picture.anchors.push_back({bar, true});
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    picture.anchor_of[nodes[i].value] = anchor;
    if (i >= shown) continue;
    const Node& node = picture.graph[nodes[i]];
    const std::size_t row = i / columns;
    picture.scene.box({kEdge + 8 + static_cast<double>(i % columns) * pitch,
                       top + kTitle + static_cast<double>(row) * (kSide + 4), pitch - 4, kSide},
                      colour(node.kind), "#64748b", title_of(picture.graph, node), 3);
  }
  return bar.height;
}

// Rows of what is outside of hosts: NVSwitches, then the network by its distance from the NICs.
std::vector<std::vector<NodeId>> rows_outside(const Picture& picture) {
  const Graph& graph = picture.graph;
  std::vector<std::vector<NodeId>> rows(2);
  std::vector<bool> seen(graph.nodes.size());
  const auto outside = [&](NodeId node) {
    return !graph[node].host.exists() && graph[node].kind != NodeKind::kHost;
  };
  std::vector<NodeId> rest;
  for (const NodeId node : graph.all()) {
    if (!outside(node)) continue;
    const auto& edges = picture.adjacency.from(node);
    const bool first = std::any_of(edges.begin(), edges.end(), [&](const auto& edge) {
      return graph.links[edge.link].kind == LinkKind::kPort;
    });
    const bool nvswitch = graph[node].kind == NodeKind::kNvSwitch;
    seen[node.value] = nvswitch || first;
    (nvswitch ? rows[0] : first ? rows[1] : rest).push_back(node);
  }
  for (std::size_t row = 1; row < rows.size(); ++row) {
    std::vector<NodeId> next;
    for (const NodeId node : rows[row]) {
      for (const auto& edge : picture.adjacency.from(node)) {
        if (seen[edge.to.value] || !outside(edge.to)) continue;
        seen[edge.to.value] = true;
        next.push_back(edge.to);
      }
    }
    if (!next.empty()) rows.push_back(std::move(next));
  }
  std::erase_if(rest, [&](NodeId node) { return seen[node.value]; });
  rows.push_back(std::move(rest));  // Joined to nothing that is drawn.
  return rows;
}

double draw_legend(Picture& picture, double top, double width) {
  std::set<LinkKind> links;
  for (const Link& link : picture.graph.links) links.insert(link.kind);
  double x = kEdge, y = top;
  const auto entry = [&](std::string_view words, auto draw) {
    const double wide = 34 + width_of(words, 10) + 18;
    if (x + wide > width - kEdge && x > kEdge) {
      x = kEdge;
      y += 20;
    }
    draw(x, y);
    picture.scene.text({x + 34, y + 4, 10, "#334155", false, true}, words);
    x += wide;
  };
  for (const auto& [kind, count] : counts_of(picture.graph, picture.graph.all())) {
    entry(people_word(kind), [&, what = kind](double left, double middle) {
      picture.scene.box({left, middle - 7, 26, 14}, colour(what), "#64748b", "", 3);
    });
  }
  for (const LinkKind kind : links) {
    entry(people_word(kind), [&](double left, double middle) {
      picture.scene.line(fmt::format("M{:.1f} {:.1f}h26", left, middle), {colour(kind), 4, 1}, "");
    });
  }
  entry("wider: more GB/s", [&](double left, double middle) {
    picture.scene.line(fmt::format("M{:.1f} {:.1f}h10", left, middle), {"#475569", 1.5, 1}, "");
    picture.scene.line(fmt::format("M{:.1f} {:.1f}h8", left + 18, middle), {"#475569", 7, 1}, "");
  });
  return y + 24;
}

// Without links to nowhere and hosts that are none: the graph may come from anybody.
Graph sound(Graph graph) {
  const std::size_t size = graph.nodes.size();
  std::erase_if(graph.links, [&](const Link& link) {
    return link.a.value >= size || link.b.value >= size || link.a == link.b;
  });
  for (Node& node : graph.nodes) {
    const bool host = node.host.value < size && graph[node.host].kind == NodeKind::kHost;
    if (!host || node.kind == NodeKind::kHost) node.host = {};
  }
  return graph;
}

}  // namespace

std::string to_svg(const Graph& given, std::string_view name) {
  const Graph graph = sound(given);
  Picture picture(graph);
  const Hosts hosts = sort_hosts(graph);
  std::vector<HostPicture> whole;
  for (const NodeId host : hosts.whole)
    whole.emplace_back(graph, picture.adjacency, host, hosts.members.at(host));
  double x = kEdge, bottom = kHead + 40;
  for (const HostPicture& host : whole) {
    host.draw(picture, x, kHead);
    x += host.width() + kSpace;
    bottom = std::max(bottom, kHead + host.height());
  }
  if (!hosts.small.empty()) {
    const Box panel = draw_small(picture, hosts, x, kHead, bottom - kHead);
    x += panel.width + kSpace;
    bottom = std::max(bottom, panel.bottom());
  }
  const std::string heading = words_of(counts_of(graph, graph.all()), ", ");
  const double head = width_of(heading, 13) + 2 * kEdge;
  const double width = std::max({x - kSpace + kEdge, head, 560.0});
  picture.scene.text({kEdge, name.empty() ? 34.0 : 46.0, 13, "#0f172a", true, true}, heading);
  if (!name.empty()) {
    const auto most = static_cast<std::size_t>((width - 2 * kEdge) / 15 / kGlyph);
    picture.scene.text({kEdge, 26, 15, "#0f172a", true, true}, shortened(std::string(name), most));
  }
  for (const std::vector<NodeId>& row : rows_outside(picture)) {
    if (row.empty()) continue;
    bottom += kApart;
    bottom += draw_row(picture, row, bottom, width);
  }
  draw_links(picture);
  const double height = draw_legend(picture, bottom + 34, width);
  return picture.scene.svg(width, height);
}

}  // namespace tutti::topology
