#include "cuda/comm/graph_costs.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "planner/machine_cost.h"
#include "topology/bounds/bound.h"

namespace tutti::planner {
namespace {

using topology::Graph;
using topology::NodeId;
using topology::NodeKind;
using topology::Over;

/// How kernels hand over slots between devices.
constexpr std::string_view kProtocol = "simple";
/// What passes the memory of the host takes twice as long as what goes to a device, as where CUDA
/// alone says what there is (cuda/comm/select.cc).
constexpr double kStagedShare = 2;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

Error not_told(std::string what) { return {Code::kUnsupported, std::move(what)}; }

Result<std::vector<NodeId>> find_devices(const Graph& graph, const DeviceMachine& machine,
                                         std::span<const std::string> bus_of_rank) {
  std::vector<NodeId> devices;
  std::set<NodeId> taken;
  for (std::size_t rank = 0; rank < machine.device_of.size(); ++rank) {
    const auto device = static_cast<std::size_t>(machine.device_of[rank]);
    if (device < devices.size()) continue;
    const auto gpus = graph.all(NodeKind::kGpu);
    const auto found = std::find_if(
        gpus.begin(), gpus.end(), [&](NodeId gpu) { return graph[gpu].bus == bus_of_rank[rank]; });
    if (found == gpus.end() || bus_of_rank[rank].empty())
      return not_told(fmt::format("it has no GPU at {}", bus_of_rank[rank]));
    if (!taken.insert(*found).second)
      return not_told(fmt::format("two devices are parts of {}", graph[*found].name));
    devices.push_back(*found);
  }
  return devices;
}

/// What goes from one device to another that way.
std::vector<plan::Use> uses_between(MachineCost& cost, NodeId from, NodeId to, DeviceLink link) {
  if (link == DeviceLink::kNvlink) return cost.uses(from, to, Over::kFast);
  if (link == DeviceLink::kPcie) return cost.uses(from, to, Over::kSlow);
  const NodeId memory = topology::numa_above(cost.graph(), to, true);
  if (!memory.exists()) return {};
  auto uses = cost.uses(from, memory, Over::kSlow);
  const auto on = cost.uses(memory, to, Over::kSlow);
  if (uses.empty() || on.empty()) return {};
  uses.insert(uses.end(), on.begin(), on.end());
  for (plan::Use& use : uses) use.share *= kStagedShare;
  return uses;
}

}  // namespace

Result<GraphCosts> graph_costs(std::shared_ptr<const Graph> graph, std::string source,
                               const DeviceMachine& machine,
                               std::span<const std::string> bus_of_rank) {
  GraphCosts costs;
  TUTTI_TRY(costs.devices, find_devices(*graph, machine, bus_of_rank));
  const auto devices = static_cast<int>(costs.devices.size());
  MachineCost cost(*graph, Groups{costs.devices, devices, 1});
  costs.resources = cost.model(*find_protocol(kProtocol)).resources;
  costs.memories = static_cast<std::uint32_t>(2 * graph->links.size());
  const std::size_t ranks = machine.device_of.size();
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      auto& uses = costs.uses.emplace_back();
      const DeviceLink link = machine.link(from, to);
      if (link == DeviceLink::kSame) continue;
      const NodeId a = costs.devices[static_cast<std::size_t>(machine.device_of[from])],
                   b = costs.devices[static_cast<std::size_t>(machine.device_of[to])];
      uses = uses_between(cost, a, b, link);
      if (uses.empty()) {
        return not_told(fmt::format("it joins {} and {} otherwise than by {}, as CUDA does",
                                    (*graph)[a].name, (*graph)[b].name, to_string(link)));
      }
      for (const plan::Use& use : uses) {
        if (costs.resources[use.resource].gigabytes_per_second <= 0)
          return not_told(fmt::format("what {} carries is not known", cost.name_of(use.resource)));
      }
    }
  }
  costs.graph = std::move(graph);
  costs.source = std::move(source);
  return costs;
}

namespace {

/// Where no pattern is known: all bytes pass the links of single devices.
double least_us(const GraphCosts& costs, const Request& request, const DeviceMachine& machine) {
  const plan::Shape& shape = request.shape;
  const auto rate_of = [&](std::size_t rank) {
    const NodeId node = costs.devices[static_cast<std::size_t>(machine.device_of[rank])];
    double out = 0, in = 0;
    for (const topology::Link& link : costs.graph->links) {
      if (link.a != node && link.b != node) continue;
      if (!link.forward.known() || !link.backward.known()) return kUnlimited;
      (link.a == node ? out : in) += link.forward.value;
      (link.a == node ? in : out) += link.backward.value;
    }
    return std::max(out, in);
  };
  const double bytes = 1e-3 * static_cast<double>(request.bytes), n = shape.rank_count;
  if (shape.collective != Collective::kReduce)
    return bytes * (n - 1) / n / rate_of(static_cast<std::size_t>(shape.root));
  double least = rate_of(0);
  for (std::size_t rank = 1; rank < machine.device_of.size(); ++rank)
    least = std::min(least, rate_of(rank));
  return bytes / least;
}

}  // namespace

DeviceBound graph_bound(const GraphCosts& costs, const Request& request,
                        const DeviceMachine& machine) {
  if (costs.devices.size() < machine.device_of.size())
    return {0, "none is known where ranks share a device"};
  const auto pattern = pattern_of(request.shape.collective);
  if (!pattern) {
    return {least_us(costs, request, machine),
            "bytes into and out of each device over all of its links"};
  }
  const bool rooted = request.shape.collective == Collective::kBroadcast;
  const auto found =
      topology::bound(*costs.graph, *pattern, costs.devices,
                      {.root = rooted ? static_cast<std::size_t>(request.shape.root) : 0});
  if (!found) return {0, found.error().what};
  // Seconds a MB are microseconds a byte.
  return {found->seconds_per_mb.value() * static_cast<double>(request.bytes), found->cut.words};
}

}  // namespace tutti::planner
