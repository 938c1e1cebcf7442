#include "topology/graph/graph.h"

#include <algorithm>
#include <array>

#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::array kNodeKinds{
#define TUTTI_NODE_KIND(enumerator, text, ...) std::string_view(text),
#include "topology/graph/node_kinds.def"
#undef TUTTI_NODE_KIND
};
constexpr std::array kLinkKinds{
#define TUTTI_LINK_KIND(enumerator, text, ...) std::string_view(text),
#include "topology/graph/link_kinds.def"
#undef TUTTI_LINK_KIND
};
constexpr std::array kOrigins{
#define TUTTI_ORIGIN(enumerator, text) std::string_view(text),
#include "topology/graph/origins.def"
#undef TUTTI_ORIGIN
};

template <class Enum, std::size_t kCount>
std::optional<Enum> parse(const std::array<std::string_view, kCount>& words,
                          std::string_view text) {
  const auto found = std::find(words.begin(), words.end(), text);
  if (found == words.end()) return std::nullopt;
  return static_cast<Enum>(found - words.begin());
}

}  // namespace

std::string_view to_string(NodeKind kind) { return kNodeKinds[static_cast<std::size_t>(kind)]; }
std::string_view to_string(LinkKind kind) { return kLinkKinds[static_cast<std::size_t>(kind)]; }
std::string_view to_string(Origin origin) { return kOrigins[static_cast<std::size_t>(origin)]; }
std::optional<NodeKind> parse_node_kind(std::string_view text) {
  return parse<NodeKind>(kNodeKinds, text);
}
std::optional<LinkKind> parse_link_kind(std::string_view text) {
  return parse<LinkKind>(kLinkKinds, text);
}
std::optional<Origin> parse_origin(std::string_view text) { return parse<Origin>(kOrigins, text); }

const std::string& fact(const Node& node, const std::string& key) {
  static const std::string kNone;
  const auto found = node.facts.find(key);
  return found == node.facts.end() ? kNone : found->second;
}

std::optional<long long> number_fact(const Node& node, const std::string& key) {
  return parse_number<long long>(fact(node, key));
}

std::string_view listed(std::string_view list, const Node& gpu) {
  const std::string own = gpu.name.substr(gpu.name.find('/') + 1);
  for (const std::string_view word : words(list)) {
    const std::size_t colon = word.find(':');
    if (word.substr(0, colon) != own) continue;
    return colon == std::string_view::npos ? "-" : word.substr(colon + 1);
  }
  return {};
}

NodeId Graph::add(Node node) {
  nodes.push_back(std::move(node));
  return {static_cast<std::uint32_t>(nodes.size() - 1)};
}

NodeId Graph::find(std::string_view name) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.name == name; });
  if (found == nodes.end()) return {};
  return {static_cast<std::uint32_t>(found - nodes.begin())};
}

std::vector<NodeId> Graph::all() const {
  std::vector<NodeId> found;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) found.push_back({i});
  return found;
}

std::vector<NodeId> Graph::all(NodeKind kind) const {
  std::vector<NodeId> found;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == kind) found.push_back({i});
  }
  return found;
}

Adjacency::Adjacency(const Graph& graph) : edges_(graph.nodes.size()) {
  for (std::uint32_t i = 0; i < graph.links.size(); ++i) {
    const Link& link = graph.links[i];
    edges_[link.a.value].push_back({link.b, i, true});
    edges_[link.b.value].push_back({link.a, i, false});
  }
}

NodeId numa_above(const Graph& graph, NodeId node, bool c2c) {
  const Adjacency adjacency(graph);
  for (int depth = 0; depth < 64 && graph[node].kind != NodeKind::kNuma; ++depth) {
    NodeId above;
    for (const Adjacency::Edge& edge : adjacency.from(node)) {
      const LinkKind kind = graph.links[edge.link].kind;
      const bool up = kind == LinkKind::kPcie || kind == LinkKind::kInternal;
      if ((!edge.forward && up) || (c2c && kind == LinkKind::kC2c)) above = edge.to;
    }
    if (!above.exists()) return {};
    node = above;
  }
  return node;
}

const Quantity& bandwidth(const Graph& graph, const Adjacency::Edge& edge) {
  const Link& link = graph.links[edge.link];
  return edge.forward ? link.forward : link.backward;
}

double pcie_bandwidth(const PcieRate& rate) {
  if (!rate.known()) return 0;
  // Per lane in GB/s. 8b/10b coding up to 5 GT/s, 128b/130b from 8 on, and the headers of packets
  // of 256 bytes: three quarters of the signalling rate.
  return rate.gigatransfers * (rate.gigatransfers < 8 ? 0.6 : 0.75) / 8 * rate.width;
}

}  // namespace tutti::topology
