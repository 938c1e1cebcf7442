#include "topology/embedding/routes.h"

#include <algorithm>

namespace tutti::topology {
namespace {

// Wider than any link: of unknown ones, and of the target itself.
constexpr double kWide = 1e9;

double width(const Graph& graph, const Adjacency::Edge& edge) {
  const Quantity& quantity = bandwidth(graph, edge);
  return quantity.known() ? quantity.value : kWide;
}

}  // namespace

bool allows(Over over, LinkKind kind) {
  const bool fast = is_fast(kind), network = is_network(kind);
  switch (over) {
    case Over::kFast: return fast;
    case Over::kSlow: return !fast && !network;
    case Over::kHost: return !network;
    case Over::kNetwork: return network;
    case Over::kAny: return true;
  }
  return false;
}

Router::Router(const Graph& graph)
    : graph_(graph),
      adjacency_(graph),
      levels_(graph.nodes.size(), -1),
      widths_(graph.nodes.size()),
      flow_(graph.nodes.size()) {}

std::map<NodeId, int> Router::distances(NodeId from, Over over) const {
  std::map<NodeId, int> found{{from, 0}};
  std::vector<NodeId> queue{from};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const NodeId node = queue[i];
    if (node != from && graph_[node].kind == NodeKind::kGpu) continue;
    for (const Adjacency::Edge& edge : adjacency_.from(node)) {
      if (!allows(over, graph_.links[edge.link].kind) || width(graph_, edge) <= 0) continue;
      if (found.emplace(edge.to, found[node] + 1).second) queue.push_back(edge.to);
    }
  }
  return found;
}

// Breadth first up to the target's level; leaves levels_ and met_ set.
bool Router::level(NodeId from, NodeId to, Over over) {
  for (const NodeId node : met_) {
    levels_[node.value] = -1;
    widths_[node.value] = flow_[node.value] = 0;
  }
  met_.assign(1, from);
  levels_[from.value] = 0;
  for (std::size_t i = 0; i < met_.size(); ++i) {
    const NodeId node = met_[i];
    const int next = levels_[node.value] + 1;
    if (levels_[to.value] >= 0 && next >= levels_[to.value]) break;
    if (node != from && graph_[node].kind == NodeKind::kGpu) continue;
    for (const Adjacency::Edge& edge : adjacency_.from(node)) {
      if (levels_[edge.to.value] >= 0 || !allows(over, graph_.links[edge.link].kind)) continue;
      if (width(graph_, edge) <= 0) continue;
      levels_[edge.to.value] = next;
      met_.push_back(edge.to);
    }
  }
  return levels_[to.value] > 0;
}

// Back from the target over the edges that lead one level on, which says what can go on from where;
// then forward again with the flow.
std::optional<Route> Router::find(NodeId from, NodeId to, Over over) {
  if (from == to) return Route{};
  if (!level(from, to, over)) return std::nullopt;
  struct Way {
    NodeId from, to;
    EdgeUse use;
    double width;
  };
  std::vector<Way> ways;
  std::vector<NodeId> queue{to};
  widths_[to.value] = kWide;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const NodeId node = queue[i];
    for (const Adjacency::Edge& back : adjacency_.from(node)) {
      const NodeId before = back.to;
      if (levels_[before.value] != levels_[node.value] - 1) continue;
      if (before != from && graph_[before].kind == NodeKind::kGpu) continue;
      const Link& link = graph_.links[back.link];
      const double wide = width(graph_, {node, back.link, !back.forward});
      if (!allows(over, link.kind) || wide <= 0) continue;
      if (widths_[before.value] == 0) queue.push_back(before);
      const double part = std::min(wide, widths_[node.value]);
      widths_[before.value] += part;
      ways.push_back({before, node, {back.link, !back.forward, 0}, part});
    }
  }
  Route route;
  flow_[from.value] = 1;
  for (auto way = ways.rbegin(); way != ways.rend(); ++way) {
    way->use.share = flow_[way->from.value] * way->width / widths_[way->from.value];
    flow_[way->to.value] += way->use.share;
    route.push_back(way->use);
  }
  return route;
}

std::optional<std::uint32_t> Router::hop(NodeId from, NodeId to, Over over) {
  const std::array key{from.value, to.value, NodeId{}.value, static_cast<std::uint32_t>(over)};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  std::optional<std::uint32_t>& place = known_[key];
  if (auto route = find(from, to, over)) place = add(*std::move(route));
  return place;
}

std::uint32_t Router::add(Route route) {
  routes_.push_back(std::move(route));
  return static_cast<std::uint32_t>(routes_.size() - 1);
}

std::optional<std::uint32_t> Router::hop(NodeId from, NodeId to) {
  for (const Over over : {Over::kFast, Over::kHost, Over::kAny}) {
    if (const auto found = hop(from, to, over)) return found;
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Router::hop(NodeId from, NodeId out, NodeId in, NodeId to) {
  if (!out.exists() || !in.exists()) return hop(from, to);
  const std::array key{from.value, to.value, out.value, in.value};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const auto up = find(from, out, Over::kHost), across = find(out, in, Over::kNetwork),
             down = find(in, to, Over::kHost);
  if (!up || !across || !down) return known_[key] = hop(from, to);
  Route route = *up;
  route.insert(route.end(), across->begin(), across->end());
  route.insert(route.end(), down->begin(), down->end());
  return known_[key] = add(std::move(route));
}

}  // namespace tutti::topology
