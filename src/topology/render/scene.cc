// File: topology/render/scene.cc: words, colours and SVG of the picture. See parts.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "topology/render/parts.h"

namespace tutti::topology {
namespace {

struct Look {
  std::string_view word, colour;
};
constexpr Look kNodeLooks[] = {
#define TUTTI_NODE_KIND(enumerator, text, ...) {__VA_ARGS__},
#include "topology/graph/node_kinds.def"
#undef TUTTI_NODE_KIND
};
constexpr Look kLinkLooks[] = {
#define TUTTI_LINK_KIND(enumerator, text, ...) {__VA_ARGS__},
#include "topology/graph/link_kinds.def"
#undef TUTTI_LINK_KIND
};

std::string rectangle(const Box& at, double radius, std::string_view fill, std::string_view edge,
                      const std::string& title) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{}\" fill=\"{}\" "
      "stroke=\"{}\"><title>{}</title></rect>\n",
      at.x, at.y, at.width, at.height, radius, fill, edge, escape_xml(title));
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      case '"': out += "&quot;"; break;
      default: {
        const bool plain = (c >= ' ' && c < 127) || c == '\n';
        out += plain ? c : '?';  // Names are ASCII by the text form; others' need not be UTF-8.
      }
    }
  }
  return out;
}

double width_of(std::string_view text, double size) {
  return static_cast<double>(text.size()) * size * kGlyph;
}

std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t tail = (most - 2) / 2;
  return text.substr(0, most - 2 - tail) + ".." + text.substr(text.size() - tail);
}

std::string rate_text(double gbs) {
  if (gbs >= 1000) return fmt::format("{:.1f} TB/s", gbs / 1000);
  if (gbs >= 100) return fmt::format("{:.0f} GB/s", gbs);
  return fmt::format("{:.3g} GB/s", gbs);
}

std::string_view colour(NodeKind kind) { return kNodeLooks[static_cast<std::size_t>(kind)].colour; }
std::string_view colour(LinkKind kind) { return kLinkLooks[static_cast<std::size_t>(kind)].colour; }
std::string_view people_word(NodeKind kind) {
  return kNodeLooks[static_cast<std::size_t>(kind)].word;
}
std::string_view people_word(LinkKind kind) {
  return kLinkLooks[static_cast<std::size_t>(kind)].word;
}

double stroke_width(LinkKind kind, double gbs) {
  if (kind == LinkKind::kInternal) return 1.2;
  return std::clamp(0.7 + 0.7 * std::log2(1 + std::max(gbs, 0.0) / 5), 0.9, 9.0);
}

std::string title_of(const Graph& graph, const Node& node) {
  std::string out = fmt::format("{}\n{}", node.name, people_word(node.kind));
  if (node.index >= 0) out += fmt::format(" {}", node.index);
  if (node.host.value < graph.nodes.size()) out += " of " + graph[node.host].name;
  if (!node.bus.empty()) out += "\nbus: " + node.bus;
  for (const auto& [key, value] : node.facts) out += fmt::format("\n{}: {}", key, value);
  return out;
}

std::string title_of(const Graph& graph, const Link& link) {
  const auto figure = [](const Quantity& quantity, std::string_view unit) {
    if (!quantity.known()) return std::string("unknown");
    return fmt::format("{:.6g} {} ({})", quantity.value, unit, to_string(quantity.origin));
  };
  std::string out = fmt::format("{} - {}\n{} x {}\nforward: {}\nbackward: {}\nlatency: {}",
                                graph[link.a].name, graph[link.b].name, link.count,
                                people_word(link.kind), figure(link.forward, "GB/s"),
                                figure(link.backward, "GB/s"), figure(link.latency_us, "us"));
  if (link.pcie) {
    const auto rate = [](const PcieRate& pcie) {
      return pcie.known() ? fmt::format("{:g} GT/s x{}", pcie.gigatransfers, pcie.width)
                          : "unknown";
    };
    out +=
        fmt::format("\nnow: {}\nat most: {}", rate(link.pcie->current), rate(link.pcie->maximum));
  }
  return out;
}

void Scene::line(const std::string& path, const Stroke& stroke, const std::string& title) {
  lines_ += fmt::format(
      "<path class=\"l\" d=\"{}\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
      "stroke-opacity=\"{:.2f}\"><title>{}</title></path>\n",
      path, stroke.colour, stroke.width, stroke.opacity, escape_xml(title));
}

void Scene::box(const Box& at, std::string_view fill, std::string_view edge,
                const std::string& title, double radius) {
  boxes_ += rectangle(at, radius, fill, edge, title);
}

void Scene::frame(const Box& at, const std::string& title) {
  frames_ += rectangle(at, 10, "#f8fafc", "#94a3b8", title);
}

void Scene::text(const Label& at, std::string_view words) {
  texts_ += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}>{}"
      "</text>\n",
      at.x, at.y, at.size, at.left ? "start" : "middle", at.colour,
      at.bold ? " font-weight=\"bold\"" : "", escape_xml(words));
}

std::string Scene::svg(double width, double height) const {
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
             "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"DejaVu Sans Mono, monospace\">\n"
             "<style>.l{{fill:none;stroke-linecap:round}} .l:hover{{stroke:#0f172a}} "
             "text{{paint-order:stroke;stroke:#fff;stroke-width:2.5px;stroke-opacity:.75;"
             "pointer-events:none}}</style>\n"
             "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
             width, height) +
         "<g>\n" + frames_ + "</g>\n<g>\n" + lines_ + "</g>\n<g>\n" + boxes_ + "</g>\n<g>\n" +
         texts_ + "</g>\n</svg>\n";
}

}  // namespace tutti::topology
