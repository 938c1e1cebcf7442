// File: topology/render/parts.h: what the picture of a graph is put together from. Internal to
// render_*.cc.
//
// A Scene collects SVG in layers: frames, lines, boxes, texts. A Picture knows for every
// node its anchor: the place where its links end. Nodes that share a box (hosts that are not drawn
// whole, a bar of switches) share an anchor, and so their links become one bundle.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

// Width of the monospaced font's glyphs, so that widths can be told without a font: a bit more than
// its 0.602.
inline constexpr double kGlyph = 0.61;

/// XML text: escaped, and what XML can't have replaced by '?'.
std::string escape_xml(std::string_view text);
/// As drawn at a font's size: what is no ASCII is one '?' for each byte.
double width_of(std::string_view text, double size);
/// At most `most` characters; the middle of a longer text is left out.
std::string shortened(const std::string& text, std::size_t most);
/// "48 GB/s", "1.2 TB/s".
std::string rate_text(double gbs);

std::string_view colour(NodeKind kind);
std::string_view colour(LinkKind kind);
std::string_view people_word(NodeKind kind);
std::string_view people_word(LinkKind kind);
double stroke_width(LinkKind kind, double gbs);
/// All that is known, one fact a line.
std::string title_of(const Graph& graph, const Node& node);
std::string title_of(const Graph& graph, const Link& link);

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double middle() const { return x + width / 2; }
  double bottom() const { return y + height; }
};

struct Label {
  double x = 0, y = 0;  // The middle of the base line, or with `left` its beginning.
  double size = 10;
  std::string_view colour = "#334155";
  bool bold = false, left = false;
};

struct Stroke {
  std::string_view colour;
  double width = 1, opacity = 0.8;
};

class Scene {
 public:
  void line(const std::string& path, const Stroke& stroke, const std::string& title);
  void box(const Box& at, std::string_view fill, std::string_view edge, const std::string& title,
           double radius = 5);
  /// A box below all lines.
  void frame(const Box& at, const std::string& title);
  void text(const Label& at, std::string_view words);
  std::string svg(double width, double height) const;

 private:
  std::string frames_, lines_, boxes_, texts_;
};

struct Anchor {
  Box box;
  bool shared = false;  // Shared by several nodes: a bar or a panel.
};

struct Picture {
  explicit Picture(const Graph& whole)
      : graph(whole), adjacency(whole), anchor_of(whole.nodes.size(), -1) {}
  const Graph& graph;
  Adjacency adjacency;
  Scene scene{};
  std::vector<Anchor> anchors{};
  std::vector<int> anchor_of;  // By node; -1: not drawn.
  std::vector<bool> drawn = std::vector<bool>(graph.links.size());

  void anchor(NodeId node, const Box& box);
  /// Draws a node with its name and what else is said, and remembers its place.
  void node(NodeId node, const Box& box, const std::string& name,
            const std::vector<std::string>& details);
};

/// A host drawn whole. First made, which measures it, then drawn at its place.
class HostPicture {
 public:
  HostPicture(const Graph& graph, const Adjacency& adjacency, NodeId host,
              std::vector<NodeId> members);
  double width() const { return width_; }
  double height() const { return height_; }
  void draw(Picture& picture, double left, double top) const;

 private:
  struct Item {
    NodeId node;
    int parent = -1;  // In items_.
    std::uint32_t link = 0;
    int depth = 0, children = 0;
    double own = 0, below = 0;  // Widths: of the box, of all below it with gaps.
    Box box{};
    std::string name{};
    std::vector<std::string> details{};  // Lines below it.
  };
  struct Gap {  // Room for NVSwitches.
    double left = 0, right = 0;
    std::vector<std::size_t> switches{};
    double room(double each) const { return std::floor(std::max(0.0, right - left) / each); }
    double far_from(double x) const { return std::max({0.0, left - x, x - right}); }
  };
  void fold(const Graph& graph, const Adjacency& adjacency);
  void grow(const Graph& graph, const Adjacency& adjacency, const std::vector<NodeId>& roots,
            bool c2c);
  void place(const Graph& graph);
  void place_switches(const Graph& graph);
  void draw_item(Picture& picture, const Item& item, double left, double top) const;
  void draw_folded(Picture& picture, NodeId first) const;
  std::vector<Gap> gaps_between_nics(const Graph& graph) const;

  NodeId host_;
  std::vector<NodeId> members_;
  std::vector<Item> items_, switches_;
  std::set<NodeId> seen_;                         // In items_, or folded.
  std::map<NodeId, std::vector<NodeId>> folded_;  // Others like a NIC that is drawn for all.
  double width_ = 0, height_ = 0;
};

/// The links between anchors that are not drawn yet: parallel ones as one line.
void draw_links(Picture& picture);

}  // namespace tutti::topology
