#include "topology/embedding/network.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tutti::topology {
namespace {

// By neighbour: what goes there and what comes from there.
struct Port {
  double out = 0, in = 0;
  std::vector<std::pair<EdgeUse, double>> uses;  // What goes there, with bandwidths.
};
using Ports = std::map<std::uint32_t, Port>;

class Reduction {
 public:
  Reduction(const Graph& graph, std::span<const NodeId> endpoints, Over over)
      : ports_(graph.nodes.size()), is_endpoint_(graph.nodes.size()) {
    for (const NodeId id : endpoints) is_endpoint_[id.value] = true;
    double wide = 1;
    for (const Link& link : graph.links) wide += link.forward.value + link.backward.value;
    const auto passes = [&](NodeId id) {
      return is_endpoint_[id.value] || graph[id].kind != NodeKind::kGpu;
    };
    for (std::uint32_t i = 0; i < graph.links.size(); ++i) {
      const Link& link = graph.links[i];
      if (!allows(over, link.kind) || !passes(link.a) || !passes(link.b)) continue;
      const auto width = [&](const Quantity& rate) { return rate.known() ? rate.value : wide; };
      join(link.a.value, link.b.value, {i, true, 1}, width(link.forward));
      join(link.b.value, link.a.value, {i, false, 1}, width(link.backward));
    }
  }

  void drop_dead_ends() {
    std::vector<std::uint32_t> queue;
    for (std::uint32_t node = 0; node < ports_.size(); ++node) queue.push_back(node);
    while (!queue.empty()) {
      const std::uint32_t node = queue.back();
      queue.pop_back();
      if (is_endpoint_[node] || ports_[node].size() != 1) continue;
      const std::uint32_t neighbour = ports_[node].begin()->first;
      ports_[node].clear();
      ports_[neighbour].erase(node);
      queue.push_back(neighbour);
    }
  }

  /// Other hosts, of which no way leads here.
  void drop_unreached(NodeId first) {
    std::vector<bool> reached(ports_.size());
    reached[first.value] = true;
    std::vector<std::uint32_t> queue{first.value};
    while (!queue.empty()) {
      const std::uint32_t node = queue.back();
      queue.pop_back();
      for (const auto& [other, port] : ports_[node]) {
        if (!reached[other]) queue.push_back(other);
        reached[other] = true;
      }
    }
    for (std::uint32_t node = 0; node < ports_.size(); ++node) {
      if (!reached[node]) ports_[node].clear();
    }
  }

  void merge_side_by_side() {
    std::map<std::vector<std::uint32_t>, std::vector<std::uint32_t>> alike;  // By neighbours.
    for (std::uint32_t node = 0; node < ports_.size(); ++node) {
      if (is_endpoint_[node] || ports_[node].empty()) continue;
      std::vector<std::uint32_t> neighbours;
      for (const auto& [other, port] : ports_[node]) neighbours.push_back(other);
      auto& nodes = alike[neighbours];
      const auto first = std::find_if(nodes.begin(), nodes.end(), [&](std::uint32_t other) {
        return proportional(ports_[other], ports_[node]);
      });
      if (first == nodes.end()) {
        nodes.push_back(node);
        continue;
      }
      for (const std::uint32_t neighbour : neighbours) {
        add(ports_[*first][neighbour], ports_[node][neighbour]);
        // At the neighbour, one port takes the other's place.
        add(ports_[neighbour][*first], ports_[neighbour][node]);
        ports_[neighbour].erase(node);
      }
      ports_[node].clear();
    }
  }

  EndpointNetwork result(std::span<const NodeId> endpoints) const {
    EndpointNetwork found;
    std::map<std::uint32_t, std::uint32_t> places;
    for (const NodeId id : endpoints)
      places.emplace(id.value, static_cast<std::uint32_t>(places.size()));
    for (std::uint32_t node = 0; node < ports_.size(); ++node) {
      if (!ports_[node].empty()) places.emplace(node, static_cast<std::uint32_t>(places.size()));
    }
    found.network.places = endpoints.size();
    found.network.nodes = places.size();
    for (const auto& [node, place] : places) {
      for (const auto& [other, port] : ports_[node]) {
        if (port.out <= 0) continue;
        found.network.arcs.push_back(
            {place, places.at(other), static_cast<std::int64_t>(port.out * 1e6)});
        Route& route = found.routes.emplace_back();
        for (const auto& [use, width] : port.uses) {
          if (width > 0) route.push_back({use.link, use.forward, width / port.out});
        }
      }
    }
    return found;
  }

 private:
  void join(std::uint32_t from, std::uint32_t to, EdgeUse use, double width) {
    Port& out = ports_[from][to];
    out.out += width;
    out.uses.emplace_back(use, width);
    ports_[to][from].in += width;
  }

  static void add(Port& port, const Port& other) {
    port.out += other.out;
    port.in += other.in;
    port.uses.insert(port.uses.end(), other.uses.begin(), other.uses.end());
  }

  // Whether one's ports are a multiple of the other's, which has the same neighbours.
  static bool proportional(const Ports& a, const Ports& b) {
    const double by = b.begin()->second.out / a.begin()->second.out;
    if (!std::isfinite(by) || by <= 0) return false;
    return std::equal(a.begin(), a.end(), b.begin(), [&](const auto& x, const auto& y) {
      return std::abs(x.second.out * by - y.second.out) <= 1e-9 * y.second.out &&
             std::abs(x.second.in * by - y.second.in) <= 1e-9 * y.second.in;
    });
  }

  std::vector<Ports> ports_;  // By node.
  std::vector<bool> is_endpoint_;
};

}  // namespace

EndpointNetwork endpoint_network(const Graph& graph, std::span<const NodeId> endpoints, Over over) {
  Reduction reduction(graph, endpoints, over);
  reduction.drop_unreached(endpoints.front());
  reduction.drop_dead_ends();
  reduction.merge_side_by_side();
  return reduction.result(endpoints);
}

}  // namespace tutti::topology
