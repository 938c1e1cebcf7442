// File: topology/render/dot.cc: a graph for Graphviz. See render.h.
#include <fmt/format.h>

#include "topology/render/render.h"

namespace tutti::topology {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string_view shape(NodeKind kind) {
  switch (kind) {
    case NodeKind::kGpu: return "box, style=filled, fillcolor=\"#cdeac0\"";
    case NodeKind::kNic: return "box, style=filled, fillcolor=\"#bfe3f2\"";
    case NodeKind::kNvSwitch: return "hexagon, style=filled, fillcolor=\"#e2d4f5\"";
    case NodeKind::kPciePort: return "point";
    case NodeKind::kNetworkSwitch:
    case NodeKind::kPlane: return "ellipse, style=filled, fillcolor=\"#dbe8ee\"";
    default: return "box";
  }
}

std::string line(const Node& node) {
  return fmt::format("{} [shape={}];\n", quoted(node.name), shape(node.kind));
}

}  // namespace

std::string to_dot(const Graph& graph) {
  std::string out = "graph topology {\n  node [fontname=\"sans-serif\"];\n";
  std::vector<std::string> inside(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    if (node.host.value < graph.nodes.size()) {
      inside[node.host.value] += "    " + line(node);
    } else if (node.kind != NodeKind::kHost) {
      out += "  " + line(node);
    }
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].kind != NodeKind::kHost && inside[i].empty()) continue;
    const std::string name = quoted(graph.nodes[i].name);
    // A host has no links; the invisible node keeps the cluster of an empty one.
    out += fmt::format("  subgraph cluster_{} {{\n    label={};\n    {} [style=invis];\n{}  }}\n",
                       i, name, name, inside[i]);
  }
  for (const Link& link : graph.links) {
    if (link.a.value >= graph.nodes.size() || link.b.value >= graph.nodes.size()) continue;
    const std::string label =
        link.kind == LinkKind::kInternal || !link.forward.known()
            ? ""
            : fmt::format(", label=\"{}{:.4g}\"",
                          link.count > 1 ? fmt::format("{}x ", link.count) : "",
                          link.forward.value);
    out += fmt::format("  {} -- {} [tooltip={}{}];\n", quoted(graph[link.a].name),
                       quoted(graph[link.b].name), quoted(to_string(link.kind)), label);
  }
  return out + "}\n";
}

}  // namespace tutti::topology
