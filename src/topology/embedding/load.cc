// What lanes put on links, from the lanes alone: the judge of embed.cc and of its tests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "topology/embedding/embed.h"

namespace tutti::topology {
namespace {

template <class... Args>
Error bad(fmt::format_string<Args...> what, Args&&... args) {
  return {Code::kInvalidPlan, "embedding: " + fmt::format(what, std::forward<Args>(args)...)};
}

Status check_ends(const Lane& lane, std::size_t routes, const Source& source) {
  if (source.from >= lane.order.size()) return bad("a tree has a parent that is no endpoint");
  if (source.hop >= routes) return bad("there is no route {}", source.hop);
  return ok();
}

// Whether following the parents from every member ends at `at`, within the group.
Status check_spread(const Lane& lane, std::size_t routes, std::size_t group, std::size_t at) {
  const std::size_t first = lane.starts[group], size = lane.starts[group + 1] - first;
  const Source* line = &lane.spread[at * lane.width()];
  std::vector<bool> reached(size);
  reached[at - first] = true;
  std::vector<std::size_t> path;
  for (std::size_t member = 0; member < size; ++member) {
    for (std::size_t m = member; !reached[m]; m = line[m].from - first) {
      TUTTI_RETURN_IF_ERROR(check_ends(lane, routes, line[m]));
      if (line[m].from < first || line[m].from >= first + size || path.size() > size)
        return bad("a tree does not start at its root, or leaves its group");
      path.push_back(m);
    }
    for (const std::size_t m : path) reached[m] = true;
    path.clear();
  }
  return ok();
}

// Whether a root's block enters every other group once, from a group that it has entered.
Status check_entries(const Lane& lane, std::size_t routes, std::size_t root) {
  const std::size_t groups = lane.groups();
  const Lane::Entry* entries = &lane.entries[root * groups];
  const std::size_t home = lane.group_of(root);
  if (entries[home].at != root) return bad("a block does not start at its root");
  std::vector<bool> reached(groups);
  reached[home] = true;
  std::vector<std::size_t> path;
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t g = group; !reached[g]; g = lane.group_of(entries[g].source.from)) {
      TUTTI_RETURN_IF_ERROR(check_ends(lane, routes, entries[g].source));
      const std::size_t at = entries[g].at;
      if (at < lane.starts[g] || at >= lane.starts[g + 1] || path.size() > groups)
        return bad("a block enters a group outside of it, or never leaves its root");
      path.push_back(g);
    }
    for (const std::size_t g : path) reached[g] = true;
    path.clear();
  }
  return ok();
}

Status check_forest(const Lane& lane, std::size_t routes) {
  const std::size_t size = lane.order.size(), groups = lane.groups();
  std::size_t widest = 0;
  bool rising = groups > 0 && lane.starts.front() == 0 && lane.starts.back() == size;
  for (std::size_t g = 0; rising && g < groups; ++g) {
    rising = lane.starts[g] < lane.starts[g + 1];
    if (rising) widest = std::max<std::size_t>(widest, lane.starts[g + 1] - lane.starts[g]);
  }
  if (!rising || !lane.hops.empty() || lane.entries.size() != size * groups ||
      lane.spread.size() != size * widest)
    return bad("a lane is neither a ring nor a forest: its tables do not fit its endpoints");
  for (std::size_t root = 0; root < size; ++root) {
    TUTTI_RETURN_IF_ERROR(check_spread(lane, routes, lane.group_of(root), root));
    TUTTI_RETURN_IF_ERROR(check_entries(lane, routes, root));
  }
  return ok();
}

Status check_lanes(const Graph& graph, std::span<const Lane> lanes, std::size_t routes) {
  if (lanes.empty()) return bad("no lanes");
  std::vector<NodeId> first;
  for (const Lane& lane : lanes) {
    std::vector<NodeId> sorted = lane.order;
    std::sort(sorted.begin(), sorted.end());
    if (first.empty()) first = sorted;
    const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (sorted.size() < 2 || twice || sorted != first || sorted.back().value >= graph.nodes.size())
      return bad("a lane does not have the endpoints of the others, each once");
    if (!(lane.gigabytes_per_second > 0) || !std::isfinite(lane.gigabytes_per_second))
      return bad("a lane's weight is not positive");
    if (!lane.is_ring()) {
      TUTTI_RETURN_IF_ERROR(check_forest(lane, routes));
      continue;
    }
    if (lane.hops.size() != lane.order.size()) return bad("a ring has not a hop for each endpoint");
    for (const std::uint32_t hop : lane.hops) {
      if (hop >= routes) return bad("there is no route {}", hop);
    }
  }
  return ok();
}

// Adds up what the routes carry, and checks each once.
class Traffic {
 public:
  Traffic(const Graph& graph, std::span<const Route> routes)
      : graph_(graph),
        routes_(routes),
        rates_(routes.size()),
        ends_(routes.size()),
        left_(graph.nodes.size()) {}

  Status add(const Lane& lane) {
    const auto others = static_cast<double>(lane.order.size() - 1);
    const double block = lane.gigabytes_per_second / others;
    if (lane.is_ring()) {
      for (std::size_t i = 0; i < lane.order.size(); ++i)
        TUTTI_RETURN_IF_ERROR(cross(lane, {static_cast<std::uint32_t>(i), lane.hops[i]}, i + 1,
                                    lane.gigabytes_per_second));
      return ok();
    }
    std::vector<double> entered(lane.order.size());  // Blocks that enter a group here, or start.
    const std::size_t groups = lane.groups();
    for (std::size_t i = 0; i < lane.entries.size(); ++i) {
      const Lane::Entry& entry = lane.entries[i];
      entered[entry.at] += block;
      if (entry.at != i / groups) TUTTI_RETURN_IF_ERROR(cross(lane, entry.source, entry.at, block));
    }
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t at = lane.starts[g]; at < lane.starts[g + 1]; ++at) {
        for (std::size_t to = lane.starts[g]; to < lane.starts[g + 1]; ++to) {
          if (to == at || entered[at] <= 0) continue;
          const Source& source = lane.spread[at * lane.width() + to - lane.starts[g]];
          TUTTI_RETURN_IF_ERROR(cross(lane, source, to, entered[at]));
        }
      }
    }
    return ok();
  }

  /// GB/s by route.
  const std::vector<double>& rates() const { return rates_; }

 private:
  Status cross(const Lane& lane, const Source& source, std::size_t to, double rate) {
    const std::pair hop{lane.order[source.from], lane.order[to % lane.order.size()]};
    if (ends_[source.hop] != hop)
      TUTTI_RETURN_IF_ERROR(check_route(routes_[source.hop], hop.first, hop.second));
    ends_[source.hop] = hop;
    rates_[source.hop] += rate;
    return ok();
  }

  // Whether a route carries a whole hop: what enters a node leaves it, but for its ends.
  Status check_route(const Route& route, NodeId from, NodeId to) {
    left_[from.value] = 1;
    left_[to.value] = -1;
    for (const EdgeUse& use : route) {
      if (use.link >= graph_.links.size()) return bad("there is no link {}", use.link);
      const Link& link = graph_.links[use.link];
      const Quantity& rate = use.forward ? link.forward : link.backward;
      if (!(use.share > 0 && use.share <= 1 + 1e-9) || (rate.known() && rate.value <= 0))
        return bad("link {} to {} carries nothing, or is given a share of {}", graph_[link.a].name,
                   graph_[link.b].name, use.share);
      left_[(use.forward ? link.a : link.b).value] -= use.share;
      left_[(use.forward ? link.b : link.a).value] += use.share;
    }
    const auto settled = [&](NodeId node) {
      return std::abs(std::exchange(left_[node.value], 0.0)) < 1e-6;
    };
    const auto lost = [&](NodeId node) {
      return bad("the hop from {} to {} loses or invents traffic at {}", graph_[from].name,
                 graph_[to].name, graph_[node].name);
    };
    if (!settled(from)) return lost(from);
    if (!settled(to)) return lost(to);
    for (const EdgeUse& use : route) {
      const Link& link = graph_.links[use.link];
      if (!settled(link.a)) return lost(link.a);
      if (!settled(link.b)) return lost(link.b);
    }
    return ok();
  }

  const Graph& graph_;
  std::span<const Route> routes_;
  std::vector<double> rates_;                    // By route.
  std::vector<std::pair<NodeId, NodeId>> ends_;  // The pairs whose route was checked.
  std::vector<double> left_;                     // By node; all 0 between checks.
};

}  // namespace

Result<Load> load(const Graph& graph, std::span<const Lane> lanes, std::span<const Route> routes) {
  TUTTI_RETURN_IF_ERROR(check_lanes(graph, lanes, routes.size()));
  Traffic traffic(graph, routes);
  double total = 0;
  for (const Lane& lane : lanes) {
    total += lane.gigabytes_per_second;
    TUTTI_RETURN_IF_ERROR(traffic.add(lane));
  }
  const std::vector<double>& weights = traffic.rates();
  Load result;
  result.links.resize(graph.links.size());
  for (std::size_t route = 0; route < weights.size(); ++route) {
    for (const EdgeUse& use : routes[route]) {
      if (use.link >= graph.links.size()) continue;  // A route that no lane uses.
      Load::Link& link = result.links[use.link];
      (use.forward ? link.forward : link.backward) += use.share * weights[route];
    }
  }
  for (std::uint32_t i = 0; i < graph.links.size(); ++i) {
    for (const bool forward : {true, false}) {
      const Quantity& rate = forward ? graph.links[i].forward : graph.links[i].backward;
      if (!rate.known() || rate.value <= 0) continue;  // Unlimited, as bounds take it, or unused.
      const double loaded = forward ? result.links[i].forward : result.links[i].backward;
      if (loaded / rate.value <= result.busiest * (1 + 1e-9)) continue;
      result.busiest = loaded / rate.value;
      result.bottleneck = {i, forward, 1};
    }
  }
  if (result.busiest <= 0) return bad("no link of known bandwidth is used");
  const auto size = static_cast<double>(lanes[0].order.size());
  result.gigabytes_per_second = total / result.busiest * size / (size - 1);
  return result;
}

}  // namespace tutti::topology
