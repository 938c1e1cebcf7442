#include "topology/join/repeat.h"

#include <fmt/format.h>

#include <array>
#include <set>

#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostNodes = std::size_t{1} << 20;
constexpr std::array kOwnFacts{"host_hash", "uuid",           "serial",
                               "guid",      "sys_image_guid", "fabric_uuid"};

NodeId host_of(const Graph& graph, NodeId node) {
  return graph[node].kind == NodeKind::kHost ? node : graph[node].host;
}

/// Adds copies of all hosts, with what is in them, and their links.
class Copier {
 public:
  explicit Copier(const Graph& from) : from_(from), made_(from) {
    for (const Node& node : from.nodes) names_.insert(node.name);
  }

  void copy() {
    std::vector<NodeId> copies(from_.nodes.size());
    for (const NodeId node : from_.all()) copies[node.value] = node;  // The network is one.
    for (const NodeId host : from_.all(NodeKind::kHost)) {
      Node node = from_[host];
      while (names_.contains(node.name = fmt::format("host{}", next_))) ++next_;
      node.index = next_++;
      copies[host.value] = add(std::move(node));
    }
    for (const NodeId old : from_.all()) {
      Node node = from_[old];
      if (!node.host.exists() || node.kind == NodeKind::kHost) continue;
      const std::string& host = from_[node.host].name;
      const bool inside = node.name.starts_with(host + "/");
      node.host = copies[node.host.value];
      node.name =
          made_[node.host].name + "/" + (inside ? node.name.substr(host.size() + 1) : node.name);
      copies[old.value] = add(std::move(node));
    }
    for (const Link& link : from_.links) {
      const NodeId a = copies[link.a.value], b = copies[link.b.value];
      if (a == link.a && b == link.b) continue;
      Link made = link;
      made.a = a;
      made.b = b;
      made_.add(made);
    }
  }

  Graph take() { return std::move(made_); }

 private:
  NodeId add(Node node) {
    for (const char* fact : kOwnFacts) node.facts.erase(fact);
    names_.insert(node.name);
    return made_.add(std::move(node));
  }

  const Graph& from_;
  Graph made_;
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
  Copier copier(graph);
  for (int i = 1; i < times; ++i) copier.copy();
  Graph made = copier.take();
  if (times > 1) made.notes.push_back(fmt::format("{} times, on one network", times));
  return made;
}

}  // namespace tutti::topology
