#include "topology/embedding/split.h"

#include <algorithm>
#include <limits>

#include "topology/bounds/max_flow.h"

namespace tutti::topology {
namespace {

// Larger than any flow here; a quarter of the range, as flows in both directions are added.
constexpr std::int64_t kWide = std::numeric_limits<std::int64_t>::max() / 4;

// Everything on the way out of a switch: capacities between all nodes, and what they are made of.
class Splitting {
 public:
  Splitting(const SwitchedNetwork& network, std::int64_t supply)
      : places_(network.places), nodes_(network.nodes), supply_(supply), edges_(nodes_ * nodes_) {
    for (std::uint32_t i = 0; i < network.arcs.size(); ++i) {
      const SwitchedNetwork::Arc& arc = network.arcs[i];
      if (arc.from == arc.to || arc.capacity <= 0) continue;
      DirectEdge& edge = at(arc.from, arc.to);
      edge.capacity += arc.capacity;
      edge.arcs[i] += static_cast<double>(arc.capacity);
    }
  }

  void run() {
    std::vector<std::uint32_t> switches;
    for (std::size_t w = places_; w < nodes_; ++w)
      switches.push_back(static_cast<std::uint32_t>(w));
    // Those with few neighbours first: it keeps the network thin.
    while (!switches.empty()) {
      const auto least =
          std::min_element(switches.begin(), switches.end(),
                           [&](std::uint32_t a, std::uint32_t b) { return degree(a) < degree(b); });
      take_out(*least);
      switches.erase(least);
    }
  }

  /// Only between endpoints.
  std::vector<DirectEdge> result() && {
    std::vector<DirectEdge> direct(places_ * places_);
    for (std::size_t from = 0; from < places_; ++from) {
      for (std::size_t to = 0; to < places_; ++to)
        direct[from * places_ + to] = std::move(at(from, to));
    }
    return direct;
  }

 private:
  DirectEdge& at(std::size_t from, std::size_t to) { return edges_[from * nodes_ + to]; }
  std::int64_t capacity(std::size_t from, std::size_t to) const {
    return edges_[from * nodes_ + to].capacity;
  }

  std::size_t degree(std::uint32_t node) const {
    std::size_t count = 0;
    for (std::size_t other = 0; other < nodes_; ++other)
      count += (capacity(node, other) > 0 ? 1U : 0U) + (capacity(other, node) > 0 ? 1U : 0U);
    return count;
  }

  void take_out(std::uint32_t w) {
    for (std::uint32_t from = 0; from < nodes_; ++from) {
      for (std::uint32_t to = 0; to < nodes_ && capacity(from, w) > 0; ++to) {
        if (to == from || capacity(w, to) == 0) continue;
        if (const std::int64_t amount = splittable(from, w, to); amount > 0)
          split(from, w, to, amount);
      }
    }
    for (std::uint32_t other = 0; other < nodes_; ++other) at(other, w) = at(w, other) = {};
  }

  void split(std::uint32_t from, std::uint32_t w, std::uint32_t to, std::int64_t amount) {
    for (DirectEdge* part : {&at(from, w), &at(w, to)}) {
      const double share = static_cast<double>(amount) / static_cast<double>(part->capacity);
      for (auto& [arc, units] : part->arcs) {
        at(from, to).arcs[arc] += units * share;
        units -= units * share;
      }
      part->capacity -= amount;
    }
    at(from, to).capacity += amount;
  }

  // How much of from -> w -> to may go past w: the least slack of a set of nodes that loses by it.
  // A set S without all endpoints must be left by supply * |S in C|. It loses if it has both ends
  // and not w, or w and neither end.
  std::int64_t splittable(std::uint32_t from, std::uint32_t w, std::uint32_t to) const {
    std::int64_t amount = std::min(capacity(from, w), capacity(w, to));
    const bool ends_left = from < places_ || to < places_;
    for (std::uint32_t left = 0; left < places_ && amount > 0; ++left) {
      if (left != from && left != to) amount = slack(amount, {from, to}, {w, left});
      if (ends_left && left > 0) continue;
      amount = slack(amount, {w, w}, {from, to, ends_left ? from : left});
    }
    return amount;
  }

  // The least slack of sets with the nodes `in` and without the nodes `out`, or `most` if it is
  // larger.
  std::int64_t slack(std::int64_t most, std::initializer_list<std::uint32_t> in,
                     std::initializer_list<std::uint32_t> out) const {
    const auto source = static_cast<std::uint32_t>(nodes_), sink = source + 1;
    MaxFlow flow(nodes_ + 2);
    for (std::uint32_t from = 0; from < nodes_; ++from) {
      for (std::uint32_t to = 0; to < nodes_; ++to) {
        if (capacity(from, to) > 0) flow.add_edge(from, to, capacity(from, to));
      }
    }
    for (std::uint32_t place = 0; place < places_; ++place) flow.add_edge(source, place, supply_);
    for (const std::uint32_t node : in) flow.add_edge(source, node, kWide);
    for (const std::uint32_t node : out) flow.add_edge(node, sink, kWide);
    const std::int64_t all = supply_ * static_cast<std::int64_t>(places_);
    return std::min(most, flow.run(source, sink, all + most) - all);
  }

  std::size_t places_, nodes_;
  std::int64_t supply_;
  std::vector<DirectEdge> edges_;  // [from * nodes + to]
};

// The edge without detours: what is put together from many splits may run in circles. Takes
// shortest paths off its flow until all of the capacity is used; what then is left are circles.
void straighten(const SwitchedNetwork& network, std::uint32_t from, std::uint32_t to,
                DirectEdge& edge) {
  const double whole = static_cast<double>(edge.capacity), least = 1e-9 * whole;
  std::map<std::uint32_t, double> straight;
  for (double left = whole; left > least;) {
    std::map<std::uint32_t, std::uint32_t> reached;  // By node: the arc it was reached by.
    std::vector<std::uint32_t> queue{from};
    for (std::size_t i = 0; i < queue.size() && !reached.contains(to); ++i) {
      for (const auto& [arc, units] : edge.arcs) {
        const SwitchedNetwork::Arc& way = network.arcs[arc];
        if (way.from != queue[i] || units <= least || way.to == from) continue;
        if (reached.emplace(way.to, arc).second) queue.push_back(way.to);
      }
    }
    if (!reached.contains(to)) break;  // All but rounding.
    double amount = left;
    for (std::uint32_t node = to; node != from; node = network.arcs[reached[node]].from)
      amount = std::min(amount, edge.arcs[reached[node]]);
    for (std::uint32_t node = to; node != from; node = network.arcs[reached[node]].from) {
      edge.arcs[reached[node]] -= amount;
      straight[reached[node]] += amount;
    }
    left -= amount;
  }
  edge.arcs = std::move(straight);
}

// All supplies at once towards one endpoint after the other.
class Gathering {
 public:
  explicit Gathering(const SwitchedNetwork& network)
      : network_(network), source_(static_cast<std::uint32_t>(network.nodes)), flow_(source_ + 1) {
    for (const SwitchedNetwork::Arc& arc : network.arcs)
      flow_.add_edge(arc.from, arc.to, arc.capacity);
    for (std::uint32_t place = 0; place < network.places; ++place)
      flow_.add_edge(source_, place, 0);
  }

  /// Whether `supply` of each reaches the endpoint.
  bool reaches(std::uint32_t place, std::int64_t supply) {
    for (std::size_t i = 0; i < network_.places; ++i)
      flow_.set_capacity(network_.arcs.size() + i, supply);
    const std::int64_t all = supply * static_cast<std::int64_t>(network_.places);
    return flow_.run(source_, place, all) >= all;
  }

  /// After reaches() was false: the largest supply that the cut it met allows; less than before.
  std::int64_t allowed() const {
    std::int64_t exit = 0, inside = 0;
    for (const SwitchedNetwork::Arc& arc : network_.arcs) {
      if (flow_.on_source_side(arc.from) && !flow_.on_source_side(arc.to)) exit += arc.capacity;
    }
    for (std::uint32_t place = 0; place < network_.places; ++place)
      inside += flow_.on_source_side(place) ? 1 : 0;
    return exit / std::max<std::int64_t>(inside, 1);
  }

 private:
  const SwitchedNetwork& network_;
  std::uint32_t source_;
  MaxFlow flow_;
};

}  // namespace

std::int64_t largest_supply(const SwitchedNetwork& network, std::int64_t most) {
  Gathering gathering(network);
  std::int64_t supply = most;
  // As in bound.cc: supplies only fall, and each belongs to a cut.
  for (std::uint32_t place = 0; place < network.places && supply > 0;) {
    if (gathering.reaches(place, supply)) {
      ++place;
      continue;
    }
    supply = gathering.allowed();
  }
  return supply;
}

bool can_gather(const SwitchedNetwork& network, std::int64_t supply) {
  Gathering gathering(network);
  for (std::uint32_t place = 0; place < network.places; ++place) {
    if (!gathering.reaches(place, supply)) return false;
  }
  return true;
}

std::optional<std::vector<DirectEdge>> split_switches(const SwitchedNetwork& network,
                                                      std::int64_t supply) {
  Splitting splitting(network, supply);
  splitting.run();
  auto direct = std::move(splitting).result();
  SwitchedNetwork rest;
  rest.places = rest.nodes = network.places;
  for (std::uint32_t from = 0; from < network.places; ++from) {
    for (std::uint32_t to = 0; to < network.places; ++to) {
      DirectEdge& edge = direct[from * network.places + to];
      if (edge.capacity == 0) continue;
      straighten(network, from, to, edge);
      rest.arcs.push_back({from, to, edge.capacity});
    }
  }
  if (!can_gather(rest, supply)) return std::nullopt;
  return direct;
}

}  // namespace tutti::topology
