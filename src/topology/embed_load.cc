// What lanes put on links, from the lanes alone: the judge of embed.cc and of its tests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "topology/embed.h"

namespace tutti::topology {
namespace {

Error bad(std::string what) { return {Code::kInvalidPlan, "embedding: " + std::move(what)}; }

// Whether a route carries a whole hop: what enters a node leaves it, but for its ends.
Status check_route(const Graph& graph, const Route& route, NodeId from, NodeId to) {
  std::map<std::uint32_t, double> left{{from.value, 1.0}, {to.value, -1.0}};
  for (const EdgeUse& use : route) {
    if (use.link >= graph.links.size()) return bad(fmt::format("there is no link {}", use.link));
    const Link& link = graph.links[use.link];
    const Quantity& rate = use.forward ? link.forward : link.backward;
    if (!(use.share > 0 && use.share <= 1 + 1e-9) || (rate.known() && rate.value <= 0))
      return bad(fmt::format("link {} to {} carries nothing, or is given a share of {}",
                             graph[link.a].name, graph[link.b].name, use.share));
    left[(use.forward ? link.a : link.b).value] -= use.share;
    left[(use.forward ? link.b : link.a).value] += use.share;
  }
  for (const auto& [node, rest] : left) {
    if (std::abs(rest) < 1e-6) continue;
    return bad(fmt::format("the hop from {} to {} loses or invents traffic at {}", graph[from].name,
                           graph[to].name, graph.nodes[node].name));
  }
  return ok();
}

Status check_orders(const Graph& graph, const Embedding& embedding) {
  if (embedding.lanes.empty()) return bad("no lanes");
  std::vector<NodeId> first;
  for (const Lane& lane : embedding.lanes) {
    std::vector<NodeId> sorted = lane.order;
    std::sort(sorted.begin(), sorted.end());
    if (first.empty()) first = sorted;
    const bool twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
    if (sorted.size() < 2 || twice || sorted != first || sorted.back().value >= graph.nodes.size())
      return bad("a lane is no ring of the endpoints of the others, each once");
    if (lane.hops.size() != lane.order.size()) return bad("a lane has not a hop for each endpoint");
    if (!(lane.gigabytes_per_second > 0) || !std::isfinite(lane.gigabytes_per_second))
      return bad("a lane's weight is not positive");
    for (const std::uint32_t hop : lane.hops) {
      if (hop >= embedding.routes.size()) return bad(fmt::format("there is no route {}", hop));
    }
  }
  return ok();
}

}  // namespace

Result<Load> load(const Graph& graph, const Embedding& embedding) {
  TUTTI_CHECK_OK(check_orders(graph, embedding));
  std::vector<double> weights(embedding.routes.size());
  std::vector<std::pair<NodeId, NodeId>> ends(weights.size());  // Whose route was checked.
  double total = 0;
  for (const Lane& lane : embedding.lanes) {
    total += lane.gigabytes_per_second;
    for (std::size_t i = 0; i < lane.order.size(); ++i) {
      const std::pair hop{lane.order[i], lane.order[(i + 1) % lane.order.size()]};
      const std::uint32_t route = lane.hops[i];
      if (ends[route] != hop)
        TUTTI_CHECK_OK(check_route(graph, embedding.routes[route], hop.first, hop.second));
      ends[route] = hop;
      weights[route] += lane.gigabytes_per_second;
    }
  }
  Load result;
  result.links.resize(graph.links.size());
  for (std::size_t route = 0; route < weights.size(); ++route) {
    for (const EdgeUse& use : embedding.routes[route]) {
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
  const auto size = static_cast<double>(embedding.lanes[0].order.size());
  result.gigabytes_per_second = total / result.busiest * size / (size - 1);
  return result;
}

}  // namespace tutti::topology
