#include "topology/bounds/bound.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <utility>

#include "topology/bounds/max_flow.h"
#include "topology/bounds/network.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

// For all-to-all: endpoints around which circles are drawn.
constexpr std::size_t kMostCentres = 16;
// Endpoints that stand for no other, of more endpoints than `kMany`: that is too long to wait for.
constexpr std::size_t kMany = 4096, kMostUnlike = 256;

Error too_large() {
  return {Code::kUnsupported,
          "bound: the bandwidths and endpoints together pass 64 bits; choose fewer endpoints"};
}
Error no_bound() {
  return {Code::kInvalidArgument,
          "bound: all cuts cross a link of unknown bandwidth; measure the links, or write their "
          "bandwidths into the machine's file"};
}
Error unreachable(const Graph& graph, NodeId node) {
  return invalid(
      "bound: {} can't be reached by, or can't reach, all other endpoints; add the "
      "missing links, or leave it out",
      graph[node].name);
}

// A cut and what it proves: T >= M[MB] * ratio.
struct Proof {
  Rational ratio;
  std::vector<bool> inside;
};

Result<Rational> fraction(std::int64_t numerator, std::int64_t a, std::int64_t b) {
  std::int64_t denominator = 0;
  if (__builtin_mul_overflow(a, b, &denominator)) return too_large();
  return Rational(numerator, denominator);
}

std::int64_t count_inside(const Network& network, const std::vector<bool>& inside) {
  return std::count_if(network.endpoints.begin(), network.endpoints.end(),
                       [&](NodeId id) { return inside[id.value]; });
}

std::vector<bool> only(const Network& network, NodeId node, bool complement) {
  std::vector<bool> inside(network.nodes, complement);
  inside[node.value] = !complement;
  return inside;
}

std::vector<std::int64_t> entering(const Network& network) {
  std::vector<std::int64_t> in(network.nodes);
  for (const Arc& arc : network.arcs) {
    std::int64_t& sum = in[arc.to];
    sum = arc.mbps == kUnlimited || sum == kUnlimited ? kUnlimited : sum + arc.mbps;
  }
  return in;
}

std::int64_t sum_known(const Network& network) {
  std::int64_t sum = 0;
  for (const Arc& arc : network.arcs) sum += arc.mbps == kUnlimited ? 0 : arc.mbps;
  return sum;
}

// Largest |S in C| / exit(S) over all S that miss an endpoint, by discrete Newton (Dinkelbach): for
// a guess p/q of it, the cut is worse than the guess if and only if not all of the q that each
// endpoint is given reach some endpoint v over capacities p * b. The smallest cut then is a better
// guess. Guesses only rise and each belongs to a cut, so it ends; in practice after one or two.
class GatherBound {
 public:
  GatherBound(const Graph& graph, const Network& network)
      : graph_(graph), network_(network), flow_(network.nodes + 1) {
    for (const Arc& arc : network.arcs) flow_.add_edge(arc.from, arc.to, 0);
    for (const NodeId id : network.endpoints) flow_.add_edge(source(), id.value, 0);
  }

  Result<Proof> run(const std::vector<NodeId>& sinks) {
    TUTTI_RETURN_IF_ERROR(start(sinks));
    std::size_t passed = 0;
    TUTTI_TRY(std::int64_t supply, scale());
    for (std::size_t i = 0; passed < sinks.size(); i = (i + 1) % sinks.size()) {
      if (flow_.run(source(), sinks[i].value) == supply) {
        ++passed;
        continue;
      }
      std::vector<bool> inside = flow_.source_side(network_.nodes);
      const std::int64_t exit = exit_mbps(network_, inside);
      if (exit == 0) return unreachable(graph_, sinks[i]);
      best_ = {{count_inside(network_, inside), exit}, std::move(inside)};
      TUTTI_TRY(supply, scale());
      passed = 0;
    }
    if (best_.inside.empty()) return no_bound();
    return std::move(best_);
  }

 private:
  std::uint32_t source() const { return static_cast<std::uint32_t>(network_.nodes); }
  std::int64_t size() const { return static_cast<std::int64_t>(network_.endpoints.size()); }

  // The first guess: all but one endpoint; or, where that crosses unknown links, less than any cut.
  Status start(const std::vector<NodeId>& sinks) {
    const auto in = entering(network_);
    best_.ratio = Rational(1, sum_known(network_) + 1);
    for (const NodeId id : sinks) {
      if (in[id.value] == 0) return unreachable(graph_, id);
      if (in[id.value] == kUnlimited) continue;
      const Rational ratio(size() - 1, in[id.value]);
      if (ratio > best_.ratio) best_ = {ratio, only(network_, id, true)};
    }
    return ok();
  }

  // Capacities for the guess; what all endpoints are given together.
  Result<std::int64_t> scale() {
    const std::int64_t p = best_.ratio.numerator();
    const std::int64_t q = best_.ratio.denominator();
    std::int64_t supply = 0;
    // A quarter of the range: edges hold their capacity and, for a while, others' flow back.
    if (__builtin_mul_overflow(q, size(), &supply) || supply > INT64_MAX / 4) return too_large();
    std::size_t edge = 0;
    for (const Arc& arc : network_.arcs) {
      std::int64_t capacity = supply;  // No flow is larger, so this is no limit.
      if (arc.mbps != kUnlimited && __builtin_mul_overflow(p, arc.mbps, &capacity)) {
        return too_large();
      }
      flow_.set_capacity(edge++, std::min(capacity, supply));
    }
    while (edge < network_.arcs.size() + network_.endpoints.size()) flow_.set_capacity(edge++, q);
    return supply;
  }

  const Graph& graph_;
  const Network& network_;
  MaxFlow flow_;
  Proof best_;
};

// The least that can flow from the root to one of the others.
Result<Proof> least_flow(const Graph& graph, const Network& network, NodeId root, bool symmetry) {
  const std::int64_t unlimited = sum_known(network) + 1;
  MaxFlow flow(network.nodes);
  for (const Arc& arc : network.arcs) {
    flow.add_edge(arc.from, arc.to, arc.mbps == kUnlimited ? unlimited : arc.mbps);
  }
  Proof best;
  std::int64_t least = unlimited;
  for (const NodeId id : symmetry ? representatives(graph, network, root) : network.endpoints) {
    if (id == root) continue;
    const std::int64_t width = flow.run(root.value, id.value);
    if (width == 0) return unreachable(graph, id);
    if (width >= least) continue;
    least = width;
    best = {Rational(1, width), flow.source_side(network.nodes)};
  }
  if (best.inside.empty()) return no_bound();
  return best;
}

// k parts that hold all endpoints: to combine k values and tell all parts takes 2(k - 1) messages
// (one-way gossip), each of which leaves a part: T >= M * 2(k - 1) / sum of exits.
// 0: they prove nothing.
Rational part_proof(const Network& network, const Parts& parts) {
  std::int64_t sum = 0;
  for (const std::int64_t exit : exits_mbps(network, parts, false)) {
    if (exit == kUnlimited) return {};
    sum += exit;
  }
  return parts.count < 2 ? Rational()
                         : Rational(2 * (static_cast<std::int64_t>(parts.count) - 1), sum);
}

Network turned(Network network) {
  for (Arc& arc : network.arcs) std::swap(arc.from, arc.to);
  return network;
}

// Every cut that has endpoints on both sides is crossed by M bytes in both directions, and what
// part_proof says of the endpoints and of the hosts, both for leaving and (reversed) for entering.
// The cut of a part_proof is its first part, or all else where entering is what counts.
Result<Proof> all_reduce(const Graph& graph, const Network& network, bool symmetry) {
  const Network reversed = turned(network);
  Proof best;
  for (const Network* direction : {&network, static_cast<const Network*>(&reversed)}) {
    TUTTI_TRY(Proof proof, least_flow(graph, *direction, network.endpoints.front(), symmetry));
    // Reversed, the sink's side is what is left through these links.
    if (direction == &reversed) proof.inside.flip();
    if (proof.ratio > best.ratio) best = std::move(proof);
    for (const auto& parts : {single_parts(network), host_parts(graph, network)}) {
      const Rational ratio = part_proof(*direction, parts);
      if (ratio <= best.ratio) continue;
      best = {ratio, inside(parts, 0)};
      if (direction == &reversed) best.inside.flip();
    }
  }
  return best;
}

// The message crosses each cut away from the first rank, on whose input all results depend, and
// each towards the last one, whose result depends on all inputs.
Result<Proof> scan(const Graph& graph, const Network& network, NodeId first, NodeId last,
                   bool symmetry) {
  const Network reversed = turned(network);
  TUTTI_TRY(Proof away, least_flow(graph, network, first, symmetry));
  TUTTI_TRY(Proof towards, least_flow(graph, reversed, last, symmetry));
  // The last rank's side is what is entered through these links: all else is left.
  towards.inside.flip();
  return towards.ratio > away.ratio ? std::move(towards) : std::move(away);
}

// From an endpoint to all others, narrow links counting as long.
constexpr std::int64_t kLength = 1'000'000'000;  // For a link of 1 MB/s.
std::vector<std::int64_t> distances(const Network& network,
                                    const std::vector<std::vector<Arc>>& leaving, NodeId from) {
  std::vector<std::int64_t> reached(network.nodes, INT64_MAX);
  using Entry = std::pair<std::int64_t, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  next.emplace(reached[from.value] = 0, from.value);
  while (!next.empty()) {
    const auto [distance, node] = next.top();
    next.pop();
    if (distance > reached[node]) continue;
    for (const Arc& arc : leaving[node]) {
      const std::int64_t there = distance + (arc.mbps == kUnlimited ? 0 : kLength / arc.mbps);
      if (there < reached[arc.to]) next.emplace(reached[arc.to] = there, arc.to);
    }
  }
  return reached;
}

// Cuts between the endpoints around one and the rest, for every such circle: sockets, quads, hosts,
// racks, whatever the links make of the machine. Each is the narrowest that keeps the two apart.
std::vector<std::vector<bool>> circles(const Network& network, std::span<const NodeId> centres) {
  const auto source = static_cast<std::uint32_t>(network.nodes), sink = source + 1;
  const std::int64_t unlimited = sum_known(network) + 1;
  MaxFlow flow(network.nodes + 2);
  std::vector<std::vector<Arc>> leaving(network.nodes);
  for (const Arc& arc : network.arcs) {
    flow.add_edge(arc.from, arc.to, arc.mbps == kUnlimited ? unlimited : arc.mbps);
    leaving[arc.from].push_back(arc);
  }
  std::vector<std::pair<std::size_t, std::size_t>> ends;  // By endpoint: from source, to sink.
  for (const NodeId id : network.endpoints)
    ends.emplace_back(flow.add_edge(source, id.value, 0), flow.add_edge(id.value, sink, 0));
  std::vector<std::vector<bool>> cuts;
  for (const NodeId centre : centres) {
    const auto reached = distances(network, leaving, centre);
    std::set<std::int64_t> radii;
    for (const NodeId id : network.endpoints) radii.insert(reached[id.value]);
    radii.erase(std::prev(radii.end()));  // That is all of them.
    for (const std::int64_t radius : radii) {
      for (std::size_t i = 0; i < ends.size(); ++i) {
        const bool within = reached[network.endpoints[i].value] <= radius;
        flow.set_capacity(ends[i].first, within ? unlimited : 0);
        flow.set_capacity(ends[i].second, within ? 0 : unlimited);
      }
      flow.run(source, sink);
      cuts.push_back(flow.source_side(network.nodes));
    }
  }
  return cuts;
}

// |S| * (N - |S|) shares of M / N cross a cut: what one proves with so many endpoints on a side and
// such an exit; 0: nothing.
Result<Rational> shares(const Network& network, std::int64_t count, std::int64_t exit) {
  const auto size = static_cast<std::int64_t>(network.endpoints.size());
  if (exit == kUnlimited || count == 0 || count == size) return Rational();
  return fraction(count * (size - count), exit, size);
}

// The worst of the cuts between one part and the rest, in both directions.
Status worst_part(const Network& network, const Parts& parts, Proof& best) {
  std::vector<std::int64_t> counts(parts.count);
  for (const NodeId id : network.endpoints) {
    if (parts.of[id.value] != Parts::kNone) ++counts[parts.of[id.value]];
  }
  for (const bool entering : {false, true}) {
    const auto exits = exits_mbps(network, parts, entering);
    for (std::size_t part = 0; part < parts.count; ++part) {
      TUTTI_TRY(const Rational ratio, shares(network, counts[part], exits[part]));
      if (ratio <= best.ratio) continue;
      best = {ratio, inside(parts, part)};
      if (entering) best.inside.flip();
    }
  }
  return ok();
}

// Which cut is worst is a hard problem (sparsest cut), so these: one endpoint and the rest, one
// host and the rest, the all-gather's worst, and what lies near an endpoint and the rest.
Result<Proof> all_to_all(const Graph& graph, const Network& network, Proof gather,
                         std::span<const NodeId> centres) {
  Proof best;
  TUTTI_RETURN_IF_ERROR(worst_part(network, host_parts(graph, network), best));
  TUTTI_RETURN_IF_ERROR(worst_part(network, single_parts(network), best));
  std::vector<std::vector<bool>> cuts{std::move(gather.inside)};
  for (auto& circle : circles(network, centres.first(std::min(centres.size(), kMostCentres))))
    cuts.push_back(std::move(circle));
  for (std::size_t i = 0, once = cuts.size(); i < 2 * once; ++i) {
    std::vector<bool> inside = cuts[i % once];
    if (i >= once) inside.flip();
    TUTTI_TRY(const Rational ratio,
              shares(network, count_inside(network, inside), exit_mbps(network, inside)));
    if (ratio > best.ratio) best = {ratio, std::move(inside)};
  }
  return best;
}

}  // namespace

Result<Bound> bound(const Graph& graph, Pattern pattern, std::span<const NodeId> endpoints,
                    const BoundOptions& options) {
  const bool reversed = pattern == Pattern::kReduceScatter || pattern == Pattern::kReduce ||
                        pattern == Pattern::kScatter;
  TUTTI_TRY(Network network, make_network(graph, endpoints, reversed));
  if (std::max(options.root, options.last) >= endpoints.size()) {
    return invalid("bound: root {} of {} endpoints; choose less",
                   std::max(options.root, options.last), endpoints.size());
  }
  const bool symmetry = options.use_symmetry;
  const std::vector<NodeId> unlike =
      symmetry ? representatives(graph, network, {}) : network.endpoints;
  if (endpoints.size() > kMany && unlike.size() > kMostUnlike) {
    return Error{Code::kUnsupported,
                 fmt::format("bound: {} of {} endpoints are unlike each other; choose at most {}",
                             unlike.size(), endpoints.size(), kMany)};
  }
  const NodeId root = endpoints[options.root];
  const auto size = static_cast<std::int64_t>(endpoints.size());
  const auto shares_to = [&](const std::vector<NodeId>& sinks) -> Result<Proof> {
    TUTTI_TRY(Proof found, GatherBound(graph, network).run(sinks));
    TUTTI_TRY(found.ratio, fraction(found.ratio.numerator(), found.ratio.denominator(), size));
    return found;
  };
  const auto prove = [&]() -> Result<Proof> {
    switch (pattern) {
      case Pattern::kAllGather:
      case Pattern::kReduceScatter: return shares_to(unlike);
      case Pattern::kGather:
      case Pattern::kScatter: return shares_to({root});
      case Pattern::kAllReduce: return all_reduce(graph, network, symmetry);
      case Pattern::kBroadcast:
      case Pattern::kReduce: return least_flow(graph, network, root, symmetry);
      case Pattern::kScan: return scan(graph, network, root, endpoints[options.last], symmetry);
      case Pattern::kAllToAll: break;
    }
    // The all-gather's says what can't be reached, and has a cut that may be the worst.
    TUTTI_TRY(Proof gather, GatherBound(graph, network).run(unlike));
    return all_to_all(graph, network, std::move(gather), unlike);
  };
  TUTTI_TRY(const Proof proof, prove());
  Bound result;
  result.seconds_per_mb = proof.ratio;
  result.exact = network.all_known && pattern != Pattern::kAllReduce && pattern != Pattern::kScan &&
                 pattern != Pattern::kAllToAll;
  result.cut = describe(graph, network, proof.inside, reversed ? "are entered" : "leave");
  result.findings = std::move(network.findings);
  return result;
}

std::vector<NodeId> default_endpoints(const Graph& graph) {
  auto gpus = graph.all(NodeKind::kGpu);
  return gpus.empty() ? graph.all(NodeKind::kNuma) : gpus;
}

}  // namespace tutti::topology
