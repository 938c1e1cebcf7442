#include "topology/join/repeat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "topology/graph/words.h"
#include "topology/join/network.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostNodes = std::size_t{1} << 20;
constexpr double kMbpsOfGbs = 8000;
constexpr std::array kOwnFacts{"host_hash", "uuid",           "serial",
                               "guid",      "sys_image_guid", "fabric_uuid"};

NodeId host_of(const Graph& graph, NodeId node) {
  return graph[node].kind == NodeKind::kHost ? node : graph[node].host;
}

/// Adds copies of all hosts of a graph to another, with what is in them, and their links.
class Copier {
 public:
  explicit Copier(Graph& made) : made_(made) {
    for (const Node& node : made.nodes) names_.insert(node.name);
  }

  /// `copies`: by node of `from`, what stands for it already; becomes that of all in hosts.
  void copy(const Graph& from, std::vector<NodeId>& copies) {
    for (const NodeId host : from.all(NodeKind::kHost)) {
      Node node = from[host];
      while (names_.contains(node.name = fmt::format("host{}", next_))) ++next_;
      node.index = next_++;
      copies[host.value] = add(std::move(node));
    }
    for (const NodeId old : from.all()) {
      Node node = from[old];
      if (!node.host.exists() || node.kind == NodeKind::kHost) continue;
      const std::string& host = from[node.host].name;
      const bool inside = node.name.starts_with(host + "/");
      node.host = copies[node.host.value];
      node.name =
          made_[node.host].name + "/" + (inside ? node.name.substr(host.size() + 1) : node.name);
      copies[old.value] = add(std::move(node));
    }
    for (Link link : from.links) {
      if (!host_of(from, link.a).exists() && !host_of(from, link.b).exists()) continue;
      link.a = copies[link.a.value];
      link.b = copies[link.b.value];
      made_.add(link);
    }
  }

 private:
  NodeId add(Node node) {
    for (const char* fact : kOwnFacts) node.facts.erase(fact);
    names_.insert(node.name);
    return made_.add(std::move(node));
  }

  Graph& made_;
  std::set<std::string> names_;
  int next_ = 0;
};

}  // namespace

Result<Graph> repeated(const Graph& graph, int times) {
  if (times < 1 ||
      static_cast<std::size_t>(times) > kMostNodes / std::max<std::size_t>(1, graph.nodes.size()))
    return invalid("{} times this machine: choose 1 to {}", times,
                   kMostNodes / std::max<std::size_t>(1, graph.nodes.size()));
  for (const Link& link : graph.links) {
    const NodeId a = host_of(graph, link.a), b = host_of(graph, link.b);
    if (a.exists() == b.exists() ? a != b : !is_network(link.kind))
      return invalid("{} and {} are joined across hosts by {}, so their hosts can't be repeated",
                     graph[link.a].name, graph[link.b].name, to_string(link.kind));
  }
  Graph made = graph;
  Copier copier(made);
  for (int i = 1; i < times; ++i) {
    std::vector<NodeId> copies = graph.all();  // The network is one.
    copier.copy(graph, copies);
  }
  if (times > 1) made.notes.push_back(fmt::format("{} times, on one network", times));
  return made;
}

Graph without_network(const Graph& host) {
  std::map<NodeId, double> rates;  // GB/s of the ports of NICs.
  double fastest = 0;
  for (const Link& link : host.links) {
    if (!is_network(link.kind) || !link.forward.known() || !link.backward.known()) continue;
    for (const NodeId nic : {link.a, link.b}) {
      if (host[nic].kind != NodeKind::kNic) continue;
      rates[nic] = std::max(rates[nic], std::min(link.forward.value, link.backward.value));
      fastest = std::max(fastest, rates[nic]);
    }
  }
  Graph made;
  std::vector<NodeId> kept(host.nodes.size());
  for (const NodeId old : host.all()) {
    Node node = host[old];
    if (node.kind == NodeKind::kNetworkSwitch || node.kind == NodeKind::kPlane) continue;
    if (node.kind == NodeKind::kNic) node.facts.erase("speed_mbps");
    const auto rate = rates.find(old);
    if (rate != rates.end() && rate->second > 0 && rate->second >= fastest)
      node.facts["speed_mbps"] = fmt::format("{}", rate->second * kMbpsOfGbs);
    kept[old.value] = made.add(std::move(node));
  }
  for (Node& node : made.nodes) {
    if (node.kind == NodeKind::kHost) continue;
    node.host = node.host.exists() ? kept[node.host.value] : made.all(NodeKind::kHost).front();
  }
  for (Link link : host.links) {
    link.a = kept[link.a.value];
    link.b = kept[link.b.value];
    if (link.a.exists() && link.b.exists()) made.add(link);
  }
  return made;
}

Result<JoinedHosts> joined(std::span<const Graph* const> hosts, std::string_view network) {
  JoinedHosts all;
  Copier copier(all.graph);
  for (const Graph* host : hosts) {
    all.first_link.push_back(static_cast<std::uint32_t>(all.graph.links.size()));
    copier.copy(*host, all.nodes.emplace_back(host->nodes.size()));
  }
  TUTTI_RETURN_IF_ERROR(join_network(all.graph, network));
  return all;
}

}  // namespace tutti::topology
