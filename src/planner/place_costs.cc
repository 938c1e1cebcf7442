#include "planner/place_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/fork.h"
#include "base/hash.h"
#include "planner/machine_cost.h"
#include "planner/machine_shape.h"
#include "planner/machine_trees.h"
#include "planner/weights.h"
#include "topology/graph/text.h"
#include "topology/graph/words.h"

namespace tutti::planner {
namespace {

using topology::Graph;
using topology::Link;
using topology::NodeId;
using topology::Over;

/// How ranks on CPUs hand over slots.
constexpr std::string_view kProtocol = "host";

/// What ways pass of the graph, with the network's assumed rate where the graph does not know one.
std::vector<plan::Resource> link_resources(const Graph& graph, MachineCost& cost,
                                           const NetworkCost& network) {
  std::vector<plan::Resource> resources = cost.model(*find_protocol(kProtocol)).resources;
  resources.resize(2 * graph.links.size());
  for (std::size_t i = 0; i < resources.size(); ++i) {
    const Link& link = graph.links[i / 2];
    if (!is_network(link.kind)) continue;
    plan::Resource& at = resources[i];
    if (!(i % 2 == 0 ? link.forward : link.backward).known())
      at.gigabytes_per_second = network.link.gigabytes_per_second;
    if (at.message_us > 0) at.message_us = network.message_us;
  }
  return resources;
}

/// Links on the way and the time of a byte on it, by which ways are told apart.
std::pair<double, double> way_of(const PlaceCosts& costs, std::size_t pair) {
  double links = 0, us = 0;
  for (const plan::Use& use : costs.uses[pair]) {
    const double rate = costs.resources[use.resource].gigabytes_per_second;
    links += use.share;
    if (rate > 0) us = std::max(us, use.share / rate);
  }
  return {std::round(links * 1e6), std::round(us * 1e6)};
}

/// The network that a way passes; none if it passes none, or one that was not measured.
std::optional<LinkCost> network_on(const Graph& graph, std::span<const plan::Use> uses) {
  LinkCost network;
  for (const plan::Use& use : uses) {
    const Link& link = graph.links[use.resource / 2];
    if (!is_network(link.kind)) continue;
    const topology::Quantity& rate = use.resource % 2 == 0 ? link.forward : link.backward;
    if (rate.origin != topology::Origin::kMeasured || rate.value <= 0) return std::nullopt;
    const double carried = rate.value / use.share;
    network.latency_us += use.share * link.latency_us.value;
    network.gigabytes_per_second = network.gigabytes_per_second == 0
                                       ? carried
                                       : std::min(network.gigabytes_per_second, carried);
  }
  return network.gigabytes_per_second > 0 ? std::optional(network) : std::nullopt;
}

/// Whether, within hosts or between them, some places are joined otherwise than others.
bool places_differ(const PlaceCosts& costs) {
  const std::size_t count = costs.places.size();
  std::optional<std::pair<double, double>> first[2];
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      const bool near =
          (*costs.graph)[costs.places[a]].host == (*costs.graph)[costs.places[b]].host;
      auto& known = first[near ? 1 : 0];
      const auto way = way_of(costs, a * count + b);
      if (known && *known != way) return true;
      known = way;
    }
  }
  return false;
}

/// `costs` has to outlive it.
plan::CostModel links_of(const PlaceCosts& costs) {
  plan::CostModel model;
  model.resources = costs.resources;
  model.link = [&costs](Rank from, Rank to) {
    return plan::Path(LinkCost{}, costs.between(from, to));
  };
  return model;
}

/// Ranks share memory where the graph has one host, and only there.
Status check_hosts(const Graph& graph, std::span<const NodeId> place_of_rank, const Hosts& hosts) {
  std::map<NodeId, int> known;
  for (std::size_t rank = 0; rank < place_of_rank.size(); ++rank) {
    const NodeId host = graph[place_of_rank[rank]].host;
    const int of = hosts.of.empty() ? 0 : hosts.of[rank];
    if (known.emplace(host, of).first->second != of)
      return Error{Code::kUnsupported,
                   fmt::format("ranks of {} reach each other over a network", graph[host].name)};
  }
  return ok();
}

/// Trees that were packed in this process, by all that they depend on.
struct Packed {
  std::mutex mutex;
  std::map<std::tuple<std::uint64_t, Collective, int>, std::vector<plan::SpanningTree>> known;
};
constexpr std::size_t kMostKnown = 1024;

Packed& packed() {
  static auto* const instance = new Packed();  // Threads may still ask when the process ends.
  return *instance;
}
const HeldAcrossFork packed_held(ForkOrder::kTrees, []() -> std::mutex& { return packed().mutex; });

std::vector<plan::SpanningTree> packed_for(const plan::Shape& shape, const PlaceCosts& costs) {
  const std::lock_guard lock(packed().mutex);
  auto& known = packed().known;
  const auto key = std::tuple(costs.hash, shape.collective, shape.root);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  if (known.size() >= kMostKnown) known.clear();
  return known[key] = trees_for(shape, links_of(costs));
}

}  // namespace

Result<PlaceCosts> place_costs(std::shared_ptr<const Graph> graph, std::string source,
                               std::span<const NodeId> place_of_rank, const Hosts& hosts) {
  TUTTI_RETURN_IF_ERROR(check_hosts(*graph, place_of_rank, hosts));
  PlaceCosts costs;
  for (const NodeId place : place_of_rank) {
    const auto found = std::find(costs.places.begin(), costs.places.end(), place);
    costs.of.push_back(static_cast<std::uint32_t>(found - costs.places.begin()));
    if (found == costs.places.end()) costs.places.push_back(place);
  }
  const std::size_t count = costs.places.size();
  if (count > kMostPlaces)
    return Error{Code::kUnsupported,
                 fmt::format("ranks are on {} NUMA nodes, and only up to {} are "
                             "looked at",
                             count, kMostPlaces)};
  MachineCost cost(*graph, costs.places);
  costs.resources = link_resources(*graph, cost, hosts.cost);
  const auto memories = static_cast<std::uint32_t>(costs.resources.size());
  costs.resources.resize(memories + count);
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      const NodeId from = costs.places[a], to = costs.places[b];
      const bool near = (*graph)[from].host == (*graph)[to].host;
      auto& uses = costs.uses.emplace_back();
      if (a != b) uses = cost.uses(from, to, near ? Over::kSlow : Over::kAny);
      if (a != b && uses.empty())
        return Error{Code::kUnsupported, fmt::format("nothing joins {} and {}", (*graph)[from].name,
                                                     (*graph)[to].name)};
      if (const auto network = network_on(*graph, uses);
          network && network->gigabytes_per_second > costs.network.gigabytes_per_second)
        costs.network = *network;
      uses.push_back({memories + static_cast<std::uint32_t>(b), 1});
    }
  }
  costs.graph = std::move(graph);
  costs.source = std::move(source);
  costs.differ = places_differ(costs);
  Hash hash;
  hash.add(topology::print(*costs.graph)).add_all(costs.of);
  for (const plan::Resource& at : costs.resources)
    hash.add(std::bit_cast<std::uint64_t>(at.gigabytes_per_second));
  costs.hash = hash.value();
  return costs;
}

HostCosts measured_costs(const PlaceCosts& places, const HostCosts& assumed) {
  HostCosts costs{{0, 0}, 0};
  for (const NodeId place : places.places) {
    const auto figure = [&](const char* key) {
      return topology::parse_number<double>(fact((*places.graph)[place], key)).value_or(0);
    };
    const double hop = figure("hop_us"), copy = figure("copy_gbs"), reduce = figure("reduce_gbs");
    if (hop <= 0 || copy <= 0 || reduce <= 0) return assumed;
    const auto lower = [](double& known, double next) {
      known = known == 0 ? next : std::min(known, next);
    };
    costs.link.latency_us = std::max(costs.link.latency_us, hop);
    lower(costs.link.gigabytes_per_second, copy);
    lower(costs.reduce_gigabytes_per_second, reduce);
  }
  return costs;
}

plan::Shape with_trees(plan::Shape shape, Contract contract, const PlannerInputs& inputs) {
  if (inputs.places == nullptr || !inputs.places->differ) return shape;
  shape.trees = packed_for(shape, *inputs.places);
  const bool any_order = plan::allows_any_order(shape.collective, contract);
  if (!any_order && !shape.trees.empty() && !trees_keep_order(shape)) shape.trees.clear();
  return shape;
}

plan::GroupSizes groups_on(const PlannerInputs& inputs, int rank_count) {
  const std::vector<std::size_t> on = ranks_on(inputs.hosts.of);
  const int size = on.empty() ? rank_count : static_cast<int>(on.front());
  auto found =
      nestings({{}, size, (rank_count + size - 1) / size}, links_of(*inputs.places)).back();
  return found.sizes == std::vector{rank_count} ? plan::GroupSizes{} : std::move(found);
}

std::vector<int> weights_on(const PlannerInputs& inputs, int rank_count) {
  if (!inputs.places->differ) return {};
  return shares_for(rank_count, links_of(*inputs.places));
}

}  // namespace tutti::planner
