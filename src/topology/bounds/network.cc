#include "topology/bounds/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "topology/graph/sets.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostEndpoints = 16384;
constexpr double kMostMbps = 1e9;

Result<std::vector<bool>> mark_endpoints(const Graph& graph, std::span<const NodeId> endpoints) {
  if (endpoints.size() < 2 || endpoints.size() > kMostEndpoints) {
    return invalid("bound: {} endpoint{}; choose 2 to {}", endpoints.size(),
                   endpoints.size() == 1 ? "" : "s", kMostEndpoints);
  }
  std::vector<bool> marked(graph.nodes.size());
  for (const NodeId id : endpoints) {
    if (id.value >= graph.nodes.size()) {
      return invalid("bound: endpoint {} is not in the graph; choose nodes of it", id.value);
    }
    if (marked[id.value]) {
      return invalid("bound: endpoint {} twice; name each once", graph[id].name);
    }
    marked[id.value] = true;
  }
  return marked;
}

// The host a node belongs to, for symmetry: hosts themselves belong to themselves.
std::uint32_t host_of(const Graph& graph, std::uint32_t node) {
  if (graph.nodes[node].kind == NodeKind::kHost) return node;
  return graph.nodes[node].host.value;
}

// Whether endpoints of one host reach each other inside it, past all GPUs: what one sends another
// then never leaves it. A node that all are next to, or are, shows it.
bool stays_inside(const Graph& graph, std::span<const NodeId> endpoints) {
  Sets joined(graph.nodes.size());
  std::map<std::uint32_t, std::set<std::size_t>> next_to;  // By endpoint: the sets it reaches.
  const auto forwards = [&](NodeId node) { return graph[node].kind != NodeKind::kGpu; };
  const auto counts = [](const Link& link) {
    return !is_network(link.kind) && !(link.forward.known() && link.forward.value <= 0) &&
           !(link.backward.known() && link.backward.value <= 0);
  };
  for (const Link& link : graph.links) {
    if (counts(link) && forwards(link.a) && forwards(link.b))
      joined.join(link.a.value, link.b.value);
  }
  for (const NodeId id : endpoints) {
    if (!graph[id].host.exists() || graph[id].host != graph[endpoints[0]].host) return false;
    auto& reached = next_to[id.value];
    if (forwards(id)) reached.insert(joined.of(id.value));
  }
  for (const Link& link : graph.links) {
    if (!counts(link)) continue;
    for (const auto& [end, other] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      const auto at = next_to.find(end.value);
      if (at != next_to.end() && forwards(other)) at->second.insert(joined.of(other.value));
    }
  }
  const auto& first = next_to[endpoints[0].value];
  return std::any_of(first.begin(), first.end(), [&](std::size_t set) {
    return std::all_of(next_to.begin(), next_to.end(),
                       [set](const auto& each) { return each.second.contains(set); });
  });
}

}  // namespace

Result<Network> make_network(const Graph& graph, std::span<const NodeId> endpoints, bool reversed) {
  Network network;
  TUTTI_TRY(network.is_endpoint, mark_endpoints(graph, endpoints));
  network.nodes = graph.nodes.size();
  network.endpoints.assign(endpoints.begin(), endpoints.end());
  for (const Node& node : graph.nodes) {
    if (node.host.exists() && node.host.value >= network.nodes) {
      return invalid("bound: the host of {} does not exist; validate the graph first", node.name);
    }
  }
  for (const Link& link : graph.links) {
    if (link.a.value >= network.nodes || link.b.value >= network.nodes)
      return invalid("bound: a link joins a node that does not exist; validate the graph first");
  }
  int unknown = 0;
  const bool inside = stays_inside(graph, endpoints);
  for (const Link& link : graph.links) {
    if (inside && is_network(link.kind)) continue;
    for (const bool forward : {true, false}) {
      const Quantity& width = forward ? link.forward : link.backward;
      const double mbps = std::round(width.value * 1000);
      if (!(mbps >= 0 && mbps <= kMostMbps)) {
        return invalid("bound: link {} - {} has {} GB/s; correct it to 0 to {} GB/s",
                       graph[link.a].name, graph[link.b].name, width.value, kMostMbps / 1000);
      }
      if (!width.known() && link.kind != LinkKind::kInternal) ++unknown;
      if (width.known() && mbps == 0) continue;
      const auto [from, to] =
          forward != reversed ? std::pair(link.a, link.b) : std::pair(link.b, link.a);
      network.arcs.push_back({from.value, to.value,
                              width.known() ? static_cast<std::int64_t>(mbps) : kUnlimited,
                              link.kind});
    }
  }
  network.all_known = unknown == 0;
  if (unknown > 0) {
    network.findings.push_back(
        {Severity::kWarning, "bandwidth-unknown", "",
         fmt::format("{} link directions of unknown bandwidth are taken as unlimited", unknown), "",
         "measure them, or write their bandwidths into the machine's file"});
  }
  return network;
}

std::int64_t exit_mbps(const Network& network, const std::vector<bool>& inside) {
  std::int64_t total = 0;
  for (const Arc& arc : network.arcs) {
    if (!inside[arc.from] || inside[arc.to]) continue;
    if (arc.mbps == kUnlimited) return kUnlimited;
    total += arc.mbps;
  }
  return total;
}

namespace {

// By node, the number of the set that it is in; kNone: of none.
using InSet = std::vector<std::uint32_t>;
constexpr std::uint32_t kNone = Parts::kNone;

InSet hosts_of(const Graph& graph) {
  InSet sets;
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const std::uint32_t host = host_of(graph, i);
    sets.push_back(NodeId{host}.exists() ? host : kNone);
  }
  return sets;
}

// Hosts and the switches that they hang on, as far as one hangs together with the other: what hangs
// on the leaves of a tree. A set has the number of one of its nodes.
InSet pods_of(const Network& network, const InSet& hosts) {
  Sets joined(network.nodes);
  for (std::uint32_t i = 0; i < network.nodes; ++i) {
    if (hosts[i] != kNone) joined.join(i, hosts[i]);
  }
  std::vector<bool> is_leaf(network.nodes);
  for (const Arc& arc : network.arcs) {
    if ((hosts[arc.from] == kNone) == (hosts[arc.to] == kNone)) continue;
    is_leaf[hosts[arc.from] == kNone ? arc.from : arc.to] = true;
    joined.join(arc.from, arc.to);
  }
  InSet pods(network.nodes, kNone);
  for (std::uint32_t i = 0; i < network.nodes; ++i) {
    if (hosts[i] != kNone || is_leaf[i]) pods[i] = static_cast<std::uint32_t>(joined.of(i));
  }
  return pods;
}

// By set: whether it is the first of those that are alike.
//
// Two are alike if, with their nodes counted in the graph's order, they have the same kinds, the
// same endpoints, the same arcs inside, and the same arcs to the same nodes outside of all sets.
// Swapping them node by node then maps the network onto itself, so an endpoint of one has the same
// cuts as its image in the other. A set with an arc straight into another one is alike to none, for
// the swap would have to move the other as well. InSet that are alike but listed in another order
// are missed, which costs time and never truth.
std::vector<bool> first_of_alike(const Network& network, const InSet& sets, NodeId apart) {
  using Row = std::array<std::int64_t, 4>;
  std::map<std::uint32_t, std::vector<Row>> rows;
  std::vector<std::int64_t> place(network.nodes, -1), counts(network.nodes);
  for (std::uint32_t i = 0; i < network.nodes; ++i) {
    if (sets[i] == kNone) continue;
    place[i] = counts[sets[i]]++;
    rows[sets[i]].push_back({0, place[i], network.is_endpoint[i], 0});
  }
  for (const Arc& arc : network.arcs) {
    const std::uint32_t from = sets[arc.from], to = sets[arc.to];
    if (from == to) {
      if (from != kNone) rows[from].push_back({1, place[arc.from], place[arc.to], arc.mbps});
      continue;
    }
    const bool straight = from != kNone && to != kNone;
    // The set's own number in the row: equal to no other's.
    if (straight) rows[from].push_back({2, from, 0, 0});
    if (straight) rows[to].push_back({2, to, 0, 0});
    if (straight) continue;
    if (from != kNone) rows[from].push_back({3, place[arc.from], arc.to, arc.mbps});
    if (to != kNone) rows[to].push_back({4, arc.from, place[arc.to], arc.mbps});
  }
  if (apart.exists() && sets[apart.value] != kNone) rows[sets[apart.value]].push_back({5, 0, 0, 0});
  std::map<std::vector<Row>, std::uint32_t> first;
  std::vector<bool> is_first(network.nodes);
  for (auto& [set, own] : rows) {
    std::sort(own.begin(), own.end());
    is_first[set] = first.emplace(std::move(own), set).second;
  }
  return is_first;
}

}  // namespace

// By hosts, and by pods of hosts with their switches. Alike hosts hang on the same switches and so
// are in one pod; so every endpoint has an image in the first of its pods, and that has one in the
// first of its hosts there.
std::vector<NodeId> representatives(const Graph& graph, const Network& network, NodeId apart) {
  const InSet hosts = hosts_of(graph), pods = pods_of(network, hosts);
  const auto first_host = first_of_alike(network, hosts, apart);
  const auto first_pod = first_of_alike(network, pods, apart);
  std::vector<NodeId> chosen;
  for (const NodeId id : network.endpoints) {
    const std::uint32_t host = hosts[id.value], pod = pods[id.value];
    if ((host == kNone || first_host[host]) && (pod == kNone || first_pod[pod]))
      chosen.push_back(id);
  }
  return chosen;
}

Parts host_parts(const Graph& graph, const Network& network) {
  Parts parts{InSet(network.nodes, kNone), 0};
  std::map<std::uint32_t, std::uint32_t> hosts;  // To parts.
  for (const NodeId id : network.endpoints) {
    const std::uint32_t host = host_of(graph, id.value);
    if (NodeId{host}.exists())
      hosts.emplace(host, 0);
    else
      parts.of[id.value] = static_cast<std::uint32_t>(parts.count++);
  }
  for (auto& [host, part] : hosts) part = static_cast<std::uint32_t>(parts.count++);
  for (std::uint32_t i = 0; i < network.nodes; ++i) {
    const auto found = hosts.find(host_of(graph, i));
    if (found != hosts.end()) parts.of[i] = found->second;
  }
  return parts;
}

Parts single_parts(const Network& network) {
  Parts parts{InSet(network.nodes, kNone), 0};
  for (const NodeId id : network.endpoints)
    parts.of[id.value] = static_cast<std::uint32_t>(parts.count++);
  return parts;
}

std::vector<bool> inside(const Parts& parts, std::size_t part) {
  std::vector<bool> nodes;
  for (const std::uint32_t of : parts.of) nodes.push_back(of == part);
  return nodes;
}

std::vector<std::int64_t> exits_mbps(const Network& network, const Parts& parts, bool entering) {
  std::vector<std::int64_t> exits(parts.count);
  for (const Arc& arc : network.arcs) {
    const std::uint32_t own = parts.of[entering ? arc.to : arc.from];
    if (own == kNone || own == parts.of[entering ? arc.from : arc.to]) continue;
    std::int64_t& sum = exits[own];
    sum = arc.mbps == kUnlimited || sum == kUnlimited ? kUnlimited : sum + arc.mbps;
  }
  return exits;
}

namespace {

// "host0", "all but host0/gpu3", "host0 and host1", or the first few and how many more.
std::string name_endpoints(const Graph& graph, const std::vector<NodeId>& ids) {
  constexpr std::size_t kNamed = 4;
  std::string text = list_of(std::span(ids).first(std::min(ids.size(), kNamed)),
                             [&](NodeId id) { return graph[id].name; });
  if (ids.size() > kNamed) text += fmt::format(" and {} more", ids.size() - kNamed);
  return text;
}

}  // namespace

Cut describe(const Graph& graph, const Network& network, const std::vector<bool>& inside,
             std::string_view verb) {
  Cut cut;
  cut.exit_mbps = exit_mbps(network, inside);
  std::vector<NodeId> in, out;
  std::map<std::uint32_t, std::pair<int, int>> hosts;  // Endpoints inside, and all.
  for (std::uint32_t i = 0; i < network.nodes; ++i) {
    if (inside[i]) cut.inside.push_back({i});
    if (!network.is_endpoint[i]) continue;
    (inside[i] ? in : out).push_back({i});
    auto& [some, all] = hosts[host_of(graph, i)];
    some += inside[i] ? 1 : 0;
    ++all;
  }
  // Whole hosts are named as hosts.
  std::vector<NodeId> whole;
  std::size_t covered = 0;
  for (const auto& [host, count] : hosts) {
    if (!NodeId{host}.exists() || count.first != count.second) continue;
    whole.push_back({host});
    covered += static_cast<std::size_t>(count.first);
  }
  const bool by_host = covered == in.size() && hosts.size() > 1;
  const std::string who = by_host                  ? name_endpoints(graph, whole)
                          : out.size() < in.size() ? "all but " + name_endpoints(graph, out)
                                                   : name_endpoints(graph, in);
  std::map<LinkKind, int> kinds;
  for (const Arc& arc : network.arcs) {
    if (inside[arc.from] && !inside[arc.to]) ++kinds[arc.kind];
  }
  std::string through;
  for (const auto& [kind, count] : kinds) {
    append(through, fmt::format("{} {} link{}", count, to_string(kind), count == 1 ? "" : "s"),
           " and ");
  }
  cut.words = fmt::format("{} of {} endpoints ({}) {} through {}: {} GB/s", in.size(),
                          in.size() + out.size(), who, verb, through,
                          static_cast<double>(cut.exit_mbps) / 1000);
  return cut;
}

}  // namespace tutti::topology
