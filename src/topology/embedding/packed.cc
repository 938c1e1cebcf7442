// The problem that rings.h solves, for a group: its endpoints are the places, and, if there
// are other groups, the network is one more, reached through every NIC.
#include <algorithm>

#include "topology/embedding/groups.h"
#include "topology/embedding/rings.h"

namespace tutti::topology {
namespace {

class Packing {
 public:
  Packing(const Graph& graph, Router& router, const Group& group, bool outside)
      : graph_(graph), router_(router), group_(group), adjacency_(graph) {
    problem_.places = group.order.size() + (outside ? 1 : 0);
    problem_.ways.resize(problem_.places * problem_.places);
  }

  std::vector<PackedRing> run(Over over) {
    for (std::size_t from = 0; from < group_.order.size(); ++from) {
      for (std::size_t to = 0; to < group_.order.size(); ++to) {
        auto& ways = problem_.ways[from * problem_.places + to];
        if (from == to) continue;
        ways.clear();
        add_way(ways, router_.find(group_.order[from], group_.order[to], Over::kFast), 0);
        if (over != Over::kFast && ways.empty())
          add_way(ways, router_.find(group_.order[from], group_.order[to], over), 0);
      }
      if (problem_.places > group_.order.size()) add_doors(from);
    }
    return problem_.capacities.empty() ? std::vector<PackedRing>{} : pack_rings(problem_);
  }

  /// The NIC by which a ring enters or leaves.
  NodeId nic(const PackedRing& ring, bool leaves) const {
    const std::size_t last = ring.order.size() - 1;
    const std::size_t outside = problem_.places - 1;
    const std::size_t hop = leaves ? ring.order[last - 1] * problem_.places + outside
                                   : outside * problem_.places + ring.order[0];
    return group_.nics[problem_.ways[hop][ring.ways[leaves ? last - 1 : last]].id];
  }

 private:
  void add_doors(std::size_t endpoint) {
    const std::size_t outside = problem_.places - 1;
    auto& out = problem_.ways[endpoint * problem_.places + outside];
    auto& in = problem_.ways[outside * problem_.places + endpoint];
    out.clear();
    in.clear();
    for (std::uint32_t i = 0; i < group_.nics.size(); ++i) {
      const NodeId nic = group_.nics[i];
      auto up = router_.find(group_.order[endpoint], nic, Over::kHost);
      auto down = router_.find(nic, group_.order[endpoint], Over::kHost);
      if (!up || !down) continue;
      add_ports(*up, *down, nic);
      add_way(out, up, i);
      add_way(in, down, i);
    }
  }

  // All links of a NIC into its network, by their bandwidths.
  void add_ports(Route& up, Route& down, NodeId nic) {
    double sum = 0, count = 0;
    for (const bool adds : {false, true}) {
      for (const Adjacency::Edge& edge : adjacency_.from(nic)) {
        const Link& link = graph_.links[edge.link];
        if (!is_network(link.kind)) continue;
        const double rate = bandwidth(graph_, edge).value;
        if (!adds) {
          sum += rate;
          ++count;
          continue;
        }
        const double share = sum > 0 ? rate / sum : 1 / count;
        up.push_back({edge.link, edge.forward, share});
        down.push_back({edge.link, !edge.forward, share});
      }
    }
  }

  void add_way(std::vector<RingProblem::Way>& ways, const std::optional<Route>& route,
               std::uint32_t id) {
    if (!route) return;
    RingProblem::Way way{id, {}};
    for (const EdgeUse& use : *route) {
      const Link& link = graph_.links[use.link];
      const Quantity& rate = use.forward ? link.forward : link.backward;
      if (!rate.known()) continue;  // Taken as unlimited, as bounds do.
      const auto [found, is_new] = resources_.emplace(
          std::pair{use.link, use.forward}, static_cast<std::uint32_t>(resources_.size()));
      if (is_new) problem_.capacities.push_back(rate.value);
      way.uses.push_back({found->second, use.share});
    }
    ways.push_back(std::move(way));
  }

  const Graph& graph_;
  Router& router_;
  const Group& group_;
  Adjacency adjacency_;
  RingProblem problem_;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> resources_;
};

bool alike(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    if (group.order.size() != groups[0].order.size()) return false;
    if (group.nics.size() != groups[0].nics.size()) return false;
  }
  return groups.size() == 1 || !groups[0].nics.empty();
}

std::size_t index_of(const std::vector<NodeId>& nodes, NodeId node) {
  return static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
}

}  // namespace

std::optional<std::vector<Lane>> packed(const Graph& graph, Router& router,
                                        const std::vector<Group>& groups, std::size_t most) {
  const bool outside = groups.size() > 1;
  const std::size_t size = groups[0].order.size();
  if (!alike(groups) || size < 2 || size + (outside ? 1 : 0) > RingProblem::kMostPlaces ||
      size > most)
    return std::nullopt;
  Packing packing(graph, router, groups[0], outside);
  std::vector<PackedRing> rings = packing.run(Over::kFast);
  if (rings.empty()) rings = packing.run(Over::kHost);
  if (rings.empty()) return std::nullopt;
  std::vector<Lane> lanes;
  for (const PackedRing& ring : rings) {
    std::vector<Passage> passages(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t i = 0; i < size; ++i)
        passages[g].path.push_back(groups[g].order[ring.order[i]]);
      if (!outside) continue;
      passages[g].in = groups[g].nics[index_of(groups[0].nics, packing.nic(ring, false))];
      passages[g].out = groups[g].nics[index_of(groups[0].nics, packing.nic(ring, true))];
    }
    auto lane = join_passages(router, std::move(passages), ring.weight);
    if (!lane) return std::nullopt;
    lanes.push_back(*std::move(lane));
  }
  return lanes;
}

}  // namespace tutti::topology
