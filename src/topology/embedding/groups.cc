#include "topology/embedding/groups.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "topology/bounds/max_flow.h"
#include "topology/graph/sets.h"

namespace tutti::topology {
namespace {

// Places of nodes on a walk down from all NUMA nodes; a node that no walk meets comes last.
std::vector<std::uint32_t> tree_places(const Graph& graph, const Adjacency& adjacency) {
  std::vector<std::uint32_t> places(graph.nodes.size(), NodeId{}.value);
  std::uint32_t next = 0;
  for (const NodeId root : graph.all(NodeKind::kNuma)) {
    std::vector<NodeId> stack{root};
    while (!stack.empty()) {
      const NodeId node = stack.back();
      stack.pop_back();
      if (places[node.value] != NodeId{}.value) continue;
      places[node.value] = next++;
      if (graph[node].kind == NodeKind::kGpu) continue;
      const auto& edges = adjacency.from(node);
      for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
        const NodeKind kind = graph[edge->to].kind;
        if (is_network(graph.links[edge->link].kind) || kind == NodeKind::kNuma) continue;
        if (kind != NodeKind::kPackage && kind != NodeKind::kNvSwitch) stack.push_back(edge->to);
      }
    }
  }
  return places;
}

// Which endpoints and NICs are close: what rotations are made of.
struct Doors {
  std::vector<std::size_t> entry;       // By NIC: the place of its endpoint.
  std::vector<std::vector<int>> links;  // By NIC and endpoint: links between; -1: no way.
};

// The nearest by links(i), of those the least used; counts the use.
template <class Links>
std::size_t nearest(std::vector<int>& used, Links links) {
  std::size_t best = 0;
  std::pair least{std::numeric_limits<int>::max(), 0};
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (links(i) < 0 || std::pair{links(i), used[i]} >= least) continue;
    least = {links(i), used[i]};
    best = i;
  }
  ++used[best];
  return best;
}

Doors find_doors(const Router& router, const Group& group) {
  Doors doors;
  std::vector<int> used(group.order.size());
  for (const NodeId nic : group.nics) {
    const auto distances = router.distances(nic, Over::kHost);
    std::vector<int>& links = doors.links.emplace_back();
    for (const NodeId endpoint : group.order) {
      const auto found = distances.find(endpoint);
      links.push_back(found == distances.end() ? -1 : found->second);
    }
    doors.entry.push_back(nearest(used, [&](std::size_t i) { return links[i]; }));
  }
  return doors;
}

// Passage l enters by NIC l, or by l modulo the NICs there are.
std::vector<Passage> passages_of(const Router& router, const Group& group, std::size_t lanes) {
  const Doors doors = find_doors(router, group);
  const std::size_t size = group.order.size();
  std::vector<int> used(group.nics.size());
  std::vector<Passage> passages(lanes);
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    Passage& passage = passages[lane];
    passage.path = group.order;
    if (group.nics.empty()) continue;
    const std::size_t nic = lane % group.nics.size();
    const std::size_t first = doors.entry[nic];
    std::rotate(passage.path.begin(), passage.path.begin() + static_cast<std::ptrdiff_t>(first),
                passage.path.end());
    passage.in = group.nics[nic];
    // A group of one endpoint is left as it is entered: a NIC sends and receives at once.
    passage.out = passage.in;
    if (size == 1) continue;
    const std::size_t last = (first + size - 1) % size;
    passage.out = group.nics[nearest(used, [&](std::size_t i) { return doors.links[i][last]; })];
  }
  return passages;
}

}  // namespace

std::vector<Group> make_groups(const Graph& graph, std::span<const NodeId> endpoints,
                               bool by_tree) {
  const Adjacency adjacency(graph);
  Sets sets(graph.nodes.size());
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].host.exists()) sets.join(i, graph.nodes[i].host.value);
  }
  for (const Link& link : graph.links) {
    if (!is_network(link.kind)) sets.join(link.a.value, link.b.value);
  }
  std::vector<Group> groups;
  std::map<std::size_t, std::size_t> places;
  std::map<NodeId, bool> hosts;  // That have endpoints.
  for (const NodeId id : endpoints) {
    const auto [found, is_new] = places.emplace(sets.of(id.value), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].order.push_back(id);
    hosts[graph[id].host] = true;
  }
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const auto found = places.find(sets.of(nic.value));
    if (found == places.end() || !hosts.contains(graph[nic].host)) continue;
    const auto& edges = adjacency.from(nic);
    const bool joined = std::any_of(edges.begin(), edges.end(), [&](const Adjacency::Edge& edge) {
      return is_network(graph.links[edge.link].kind);
    });
    if (joined) groups[found->second].nics.push_back(nic);
  }
  const auto tree = by_tree ? tree_places(graph, adjacency) : std::vector<std::uint32_t>{};
  for (Group& group : groups) {
    std::sort(group.order.begin(), group.order.end());
    if (!by_tree) continue;
    std::stable_sort(group.order.begin(), group.order.end(),
                     [&](NodeId a, NodeId b) { return tree[a.value] < tree[b.value]; });
  }
  return groups;
}

double port_rate(const Graph& graph, const Adjacency& adjacency, NodeId nic) {
  double forward = 0, backward = 0;
  for (const Adjacency::Edge& edge : adjacency.from(nic)) {
    const Link& link = graph.links[edge.link];
    if (!is_network(link.kind)) continue;
    forward += link.forward.value;
    backward += link.backward.value;
  }
  return std::min(forward, backward);
}

double entry_limit(const Graph& graph, const std::vector<Group>& groups) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  if (groups.size() < 2) return kUnlimited;
  // MB/s, wider than any machine and far from 64 bits even as a sum over a large one.
  constexpr std::int64_t kWide = 1'000'000'000'000;
  const auto source = static_cast<std::uint32_t>(graph.nodes.size()), sink = source + 1;
  MaxFlow flow(graph.nodes.size() + 2);
  for (const NodeId id : groups[0].order) flow.add_edge(id.value, sink, kWide);
  for (std::size_t g = 1; g < groups.size(); ++g) {
    for (const NodeId id : groups[g].order) flow.add_edge(source, id.value, kWide);
  }
  const auto add = [&](NodeId from, NodeId to, const Quantity& rate) {
    const double mbps = rate.known() ? std::ceil(rate.value * 1000) : double{kWide};
    const double most = double{kWide};
    flow.add_edge(from.value, to.value, static_cast<std::int64_t>(std::min(mbps, most)));
  };
  for (const Link& link : graph.links) {
    add(link.a, link.b, link.forward);
    add(link.b, link.a, link.backward);
  }
  const std::int64_t mbps = flow.run(source, sink);
  return mbps >= kWide ? kUnlimited : static_cast<double>(mbps) / 1000;
}

std::optional<Lane> join_passages(Router& router, std::vector<Passage> passages, double weight) {
  for (std::size_t g = 1; g < passages.size(); g += 2) {
    std::reverse(passages[g].path.begin(), passages[g].path.end());
    std::swap(passages[g].in, passages[g].out);
  }
  Lane lane;
  lane.gigabytes_per_second = weight;
  for (std::size_t g = 0; g < passages.size(); ++g) {
    const Passage& passage = passages[g];
    const Passage& next = passages[(g + 1) % passages.size()];
    for (std::size_t i = 0; i < passage.path.size(); ++i) {
      const bool leaves = i + 1 == passage.path.size();
      const auto hop = leaves && passages.size() > 1
                           ? router.hop(passage.path[i], passage.out, next.in, next.path[0])
                           : router.hop(passage.path[i], passage.path[leaves ? 0 : i + 1]);
      if (!hop) return std::nullopt;
      lane.order.push_back(passage.path[i]);
      lane.hops.push_back(*hop);
    }
  }
  return lane;
}

std::optional<std::vector<Lane>> rotations(const Graph& graph, Router& router,
                                           const std::vector<Group>& groups) {
  const Adjacency adjacency(graph);
  std::size_t count = 1;
  if (groups.size() > 1) {
    for (const Group& group : groups) count = std::max(count, group.nics.size());
  }
  std::vector<std::vector<Passage>> passages(count, std::vector<Passage>(groups.size()));
  std::vector<double> weights(count, std::numeric_limits<double>::infinity());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    auto of_group = passages_of(router, groups[g], count);
    const std::size_t nics = std::max<std::size_t>(groups[g].nics.size(), 1);
    for (std::size_t lane = 0; lane < count; ++lane) {
      // Lanes that share a NIC share its rate.
      const NodeId nic = of_group[lane].in;
      const double rate = nic.exists() ? port_rate(graph, adjacency, nic) : 0;
      const std::size_t sharing = (count - lane % nics + nics - 1) / nics;
      if (rate > 0) weights[lane] = std::min(weights[lane], rate / static_cast<double>(sharing));
      passages[lane][g] = std::move(of_group[lane]);
    }
  }
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < count; ++i) {
    const bool known = weights[i] < std::numeric_limits<double>::infinity();
    auto lane = join_passages(router, std::move(passages[i]), known ? weights[i] : 1);
    if (!lane) return std::nullopt;
    lanes.push_back(*std::move(lane));
  }
  return lanes;
}

}  // namespace tutti::topology
