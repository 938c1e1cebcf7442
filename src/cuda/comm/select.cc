#include "cuda/comm/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "cuda/comm/graph_costs.h"
#include "cuda/comm/plan_costs.h"
#include "planner/kernel_phases.h"
#include "planner/kernel_shape.h"
#include "planner/machine_cost.h"
#include "planner/machine_shape.h"
#include "planner/machine_trees.h"
#include "planner/override.h"
#include "planner/weights.h"

namespace tutti::planner {
namespace {

using cuda::SlotFormat;

/// What one way of reaching memory does. A hop of a slot's flag, and one of data with their flags
/// beside them (the eager path): planner/kernel_phases.h. Bandwidth, of a device's port in one
/// direction: NVLink 3, PCI Express 4.0 with 16 lanes, and that twice for memory of the host.
/// Between hosts that way is taken, and then the network (Hosts::cost).
struct LinkFigures {
  std::string_view name;
  LinkCost cost;
  double eager_us;
};
constexpr KernelPhases kIs = kKernelPhases;
constexpr LinkFigures kLinks[] = {{"same device", {kIs.same_device_us, 0}, kIs.packed_us},
                                  {"NVLink", {kIs.flag_us, 250}, kIs.packed_us},
                                  {"PCIe", {kIs.pcie_us(), 22}, kIs.packed_pcie_us},
                                  {"host", {2 * kIs.pcie_us(), 11}, kIs.packed_pcie_us},
                                  {"network", {kIs.network_us / 2, 11}, kIs.packed_network_us}};
constexpr std::size_t kLeastClass = 128;  // Bytes of the first size class.
constexpr std::size_t kLeastEager = 8;    // That are tried as the limit of the eager path.
constexpr double kMemoryRate = 1555;      // GB/s: an A100's.

/// Ranks up to which lanes stand on rank orders of their own.
constexpr std::size_t kMostOrdered = 16;

constexpr auto kKinds = static_cast<std::uint32_t>(std::size(kLinks));

/// Where a machine's resources are: ports, out and in by rank and kind; memories by device; the
/// network, out and in by host; and NVLinks that join just two, by rank and peer.
struct Places {
  std::uint32_t ranks, memories, hosts;
  std::vector<std::uint32_t> direct;  // 0: none; there is always a port before it.
  explicit Places(const DeviceMachine& machine)
      : ranks(static_cast<std::uint32_t>(machine.device_of.size())),
        memories(2 * kKinds * ranks),
        hosts(memories + ranks),
        direct(machine.direct.size()) {
    auto next = hosts + 2 * static_cast<std::uint32_t>(ranks_on(machine.hosts.of).size());
    for (std::size_t pair = 0; pair < direct.size(); ++pair) {
      if (machine.direct[pair] > 0) direct[pair] = next++;
    }
  }
  std::uint32_t port(std::uint32_t rank, std::uint32_t kind, bool in) const {
    return (rank * kKinds + kind) * 2 + (in ? 1 : 0);
  }
};

/// Ranks of one device share its memory, and so do their ports, but that is left out: they are few.
std::vector<plan::Resource> resources_of(const DeviceMachine& machine, const Places& at) {
  std::vector<plan::Resource> resources(at.hosts);
  for (std::uint32_t rank = 0; rank < at.ranks; ++rank) {
    for (std::uint32_t kind = 0; kind < kKinds; ++kind) {
      for (const bool in : {false, true}) {
        resources[at.port(rank, kind, in)].gigabytes_per_second =
            kLinks[kind].cost.gigabytes_per_second;
      }
    }
    resources[at.memories + rank].gigabytes_per_second = kMemoryRate;
  }
  const NetworkCost& network = machine.hosts.cost;
  for (std::size_t host = 0; host < ranks_on(machine.hosts.of).size(); ++host) {
    plan::Resource out, in;
    out.gigabytes_per_second = in.gigabytes_per_second = network.link.gigabytes_per_second;
    out.message_us = network.message_us;
    resources.push_back(out);
    resources.push_back(in);
  }
  for (const double rate : machine.direct) {
    if (rate > 0) resources.push_back({.gigabytes_per_second = rate});
  }
  return resources;
}

/// What steps take is their lane's.
void set_steps(plan::CostModel& model, double lane_us) {
  model.step_us = 0;
  model.lane_us = lane_us;
  model.lane_gigabytes_per_second = kIs.lane_gigabytes_per_second;
}

/// What the graph of the hosts says. `machine` has to outlive it.
plan::CostModel graph_model(const DeviceMachine& machine) {
  const GraphCosts& graph = *machine.graph;
  plan::CostModel model;
  set_steps(model, kIs.slots_lane_us());
  model.resources = graph.resources;
  model.compute = [&machine, first = graph.memories](Rank rank) {
    const int device = machine.device_of[static_cast<std::size_t>(rank.value)];
    return plan::Use{first + static_cast<std::uint32_t>(device), 1};
  };
  model.link = [&machine, &graph](Rank from, Rank to) {
    const auto out = static_cast<std::size_t>(from.value), in = static_cast<std::size_t>(to.value);
    const auto kind = static_cast<std::size_t>(machine.link(out, in));
    const bool remote = machine.link(out, in) == DeviceLink::kNetwork;
    const double network_us = remote ? machine.hosts.cost.link.latency_us : 0;
    return plan::Path(LinkCost{kLinks[kind].cost.latency_us + network_us, 0}, graph.uses(out, in));
  };
  return model;
}

/// `machine` has to outlive it.
plan::CostModel cost_model(const DeviceMachine& machine) {
  if (machine.graph != nullptr) return graph_model(machine);
  Places at(machine);
  plan::CostModel model;
  set_steps(model, kIs.slots_lane_us());
  model.resources = resources_of(machine, at);
  model.compute = [&machine, first = at.memories](Rank rank) {
    const int device = machine.device_of[static_cast<std::size_t>(rank.value)];
    return plan::Use{first + static_cast<std::uint32_t>(device), 1};
  };
  model.link = [&machine, at = std::move(at)](Rank from, Rank to) {
    const auto out = static_cast<std::uint32_t>(from.value),
               in = static_cast<std::uint32_t>(to.value);
    const DeviceLink link = machine.link(out, in);
    const auto kind = static_cast<std::uint32_t>(link);
    LinkCost hop{kLinks[kind].cost.latency_us, 0};
    if (link == DeviceLink::kNetwork) {
      const auto host = [&](std::uint32_t rank) {
        return static_cast<std::uint32_t>(machine.hosts.of[rank]);
      };
      hop.latency_us += machine.hosts.cost.link.latency_us;
      return plan::Path(hop, {{at.hosts + 2 * host(out), 1}, {at.hosts + 2 * host(in) + 1, 1}});
    }
    if (link == DeviceLink::kSame) return plan::Path(hop);
    const std::uint32_t own = at.direct.empty() ? 0 : at.direct[out * at.ranks + in];
    if (own != 0) return plan::Path(hop, {{own, 1}});
    return plan::Path(hop, {{at.port(out, kind, false), 1}, {at.port(in, kind, true), 1}});
  };
  return model;
}

/// What calls over multicast memory pay; none: there is no such thing here. Where sums are
/// canonical, switches only multicast.
std::unique_ptr<const DevicePlanCosts> multicast_costs(const Request& request,
                                                       const DeviceMachine& machine) {
  if (machine.graph == nullptr || machine.graph->multicast.empty()) return nullptr;
  plan::CostModel model = graph_model(machine);
  model.resources = machine.graph->multicast;
  for (plan::Resource& at : model.resources) {
    if (request.contract == Contract::kDeterministic && at.joins == plan::Resource::Joins::kReduce)
      at.joins = plan::Resource::Joins::kNothing;
  }
  const Protocol& protocol = *find_protocol(kMulticastProtocol);
  model.lane_us = protocol.lane_us;
  model.lane_gigabytes_per_second = protocol.lane_gigabytes_per_second;
  model.link = [link = std::move(model.link), us = protocol.hop_us.nvlink](Rank from, Rank to) {
    plan::Path path = link(from, to);
    path.own.latency_us = us;
    return path;
  };
  return std::make_unique<const DevicePlanCosts>(machine, std::move(model));
}

/// What plans over slots with flags pay, and over packed ones the one-shot kernel.
plan::CostModel flagged_model(const DeviceMachine& machine, SlotFormat format) {
  plan::CostModel model = cost_model(machine);
  set_steps(model, kIs.flagged_lane_us());
  model.sees_slots = false;
  const bool lines = format == SlotFormat::kLine;
  const double data = find_protocol(lines ? "lines" : "packed")->efficiency;
  for (plan::Resource& at : model.resources) at.gigabytes_per_second *= data;
  model.link = [&machine, lines, link = std::move(model.link)](Rank from, Rank to) {
    plan::Path path = link(from, to);
    const DeviceLink kind =
        machine.link(static_cast<std::size_t>(from.value), static_cast<std::size_t>(to.value));
    path.own.latency_us = lines ? kIs.lines_us : kLinks[static_cast<std::size_t>(kind)].eager_us;
    return path;
  };
  return model;
}

/// The plans of a request whose bytes are a size class.
Result<std::vector<Candidate>> plans_of(const Request& request, const DevicePlanCosts& costs) {
  // Overrides may name any plan.
  if (costs.overrides().empty() && request.algorithm_override.empty()) costs.find_fastest(request);
  return usable_plans(request, costs);
}

DevicePlanCosts costs_of(const Request& request, const DeviceMachine& machine) {
  std::map<SlotFormat, plan::CostModel> flagged;
  for (const cuda::RingSet& set : machine.flagged)
    flagged.emplace(set.format, flagged_model(machine, set.format));
  return {machine, cost_model(machine), std::move(flagged), multicast_costs(request, machine)};
}

/// Devices that keep a line whole, by compute capability. No specification says so: NCCL relies on
/// it for its protocol LL128 over NVLink on these (src/graph/tuning.cc, where all are alike).
constexpr int kKeepLines[] = {70, 80, 90, 100};

/// What one way has of its own: its kind, the links that it takes (within hosts), and what it
/// carries alone.
std::tuple<DeviceLink, double, double> way_of(const DeviceMachine& machine, std::size_t rank,
                                              std::size_t peer) {
  const DeviceLink link = machine.link(rank, peer);
  if (machine.graph == nullptr) return {link, 1, machine.direct_rate(rank, peer)};
  double links = 0, us = 0;
  for (const plan::Use& use : machine.graph->uses(rank, peer)) {
    if (link != DeviceLink::kNetwork) links += use.share;
    us = std::max(us, use.share / machine.graph->resources[use.resource].gigabytes_per_second);
  }
  return {link, std::round(links * 1e6), std::round(us * 1e6)};
}

/// Whether, within hosts, some devices are joined otherwise than others; where a graph says it,
/// also between hosts.
bool links_differ(const DeviceMachine& machine) {
  const std::size_t ranks = machine.device_of.size();
  std::optional<std::tuple<DeviceLink, double, double>> local, remote;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const DeviceLink link = machine.link(rank, peer);
      if (link == DeviceLink::kSame) continue;
      if (link == DeviceLink::kNetwork && machine.graph == nullptr) continue;
      const auto one = way_of(machine, rank, peer);
      auto& first = link == DeviceLink::kNetwork ? remote : local;
      if (first && *first != one) return true;
      first = one;
    }
  }
  return false;
}

/// Without a graph only over NVLinks and networks: what a PCI Express link carries is not known, as
/// devices share it, and a tree is as slow as its slowest hop. Nor is there a link between ranks of
/// one device.
std::vector<plan::SpanningTree> trees_of(const plan::Shape& shape, const DeviceMachine& machine,
                                         plan::CostModel model) {
  if (machine.graph != nullptr) return trees_for(shape, model);
  model.link = [&machine, link = std::move(model.link)](Rank from, Rank to) {
    const DeviceLink kind =
        machine.link(static_cast<std::size_t>(from.value), static_cast<std::size_t>(to.value));
    const bool taken = kind == DeviceLink::kNvlink || kind == DeviceLink::kNetwork;
    return taken ? link(from, to) : plan::Path();
  };
  return trees_for(shape, model);
}

/// With groups within hosts, unless the user named others.
plan::GroupSizes nested(const DeviceMachine& machine, const plan::CostModel& model) {
  const auto ranks = static_cast<int>(machine.device_of.size());
  const std::vector<std::size_t> on = ranks_on(machine.hosts.of);
  const int size = on.empty() ? ranks : static_cast<int>(on.front());
  const bool of_hosts =
      on.empty() ? machine.groups.sizes.empty() : machine.groups == plan::GroupSizes{size};
  if (!of_hosts) return machine.groups;
  const auto found = nestings({{}, size, ranks / size}, model).back();
  return found.sizes == std::vector{ranks} ? plan::GroupSizes{} : found;
}

/// The rank orders of rings over all links, where plans may add up in any order. Where links are
/// alike, they are of a mesh: ranks in their own order would use but some of them.
std::vector<plan::RankOrder> orders_of(Collective collective, int root, Contract contract,
                                       const DeviceMachine& machine) {
  const std::size_t ranks = machine.device_of.size();
  const bool any_order = plan::allows_any_order(collective, contract);
  if (!any_order || machine.graph == nullptr || ranks < 3 || ranks > kMostOrdered ||
      machine.graph->devices.size() != ranks)
    return {};
  const auto hosts = std::max<std::size_t>(1, ranks_on(machine.hosts.of).size());
  // In the order of ranks, whatever is near in the graph.
  const bool alike = machine.groups == plan::GroupSizes{static_cast<int>(ranks / hosts)};
  Groups groups{machine.graph->devices, static_cast<int>(ranks), 1};
  if (hosts > 1 && alike)
    groups = {groups.endpoints, static_cast<int>(ranks / hosts), static_cast<int>(hosts)};
  const auto layouts = MachineCost(machine.graph->graph, std::move(groups)).layouts();
  std::vector<plan::RankOrder> orders;
  for (std::vector<Rank> ring : layouts.back()) {
    if (layouts.size() < 2) break;
    put_root(ring,
             traits_of(collective).root_input || traits_of(collective).root_output ? root : 0);
    auto& order = orders.emplace_back();
    for (const Rank rank : ring) order.push_back(static_cast<std::uint16_t>(rank.value));
  }
  return orders;
}

/// What the ports of devices allow.
double port_bound_us(const Request& request, const DeviceMachine& machine) {
  const plan::CostModel model = cost_model(machine);
  const int ranks = request.shape.rank_count;
  std::vector<double> rates;  // GB/s by rank, of all that leads out of it; as much leads into it.
  for (int rank = 0; rank < ranks; ++rank) {
    std::set<std::uint32_t> ways_out;
    for (int peer = 0; peer < ranks; ++peer) {
      const auto uses = model.link(Rank{rank}, Rank{peer}).uses;
      if (!uses.empty()) ways_out.insert(uses.front().resource);
      if (peer != rank && uses.empty()) return 0;  // Within a device.
    }
    double& rate = rates.emplace_back(0);
    for (const std::uint32_t at : ways_out) rate += model.resources[at].gigabytes_per_second;
  }
  if (ranks < 2) return 0;
  const double bytes = 1e-3 * static_cast<double>(request.bytes), n = ranks;
  const double least = *std::min_element(rates.begin(), rates.end());
  switch (request.shape.collective) {
    case Collective::kAllReduce:  // Each gets and gives all; and all together, what alike ones do.
      return std::max(bytes / least,
                      2 * (n - 1) * bytes / std::accumulate(rates.begin(), rates.end(), 0.0));
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExclusiveScan: return bytes / least;
    case Collective::kGather:
    case Collective::kScatter:
      return bytes * (n - 1) / n / rates[static_cast<std::size_t>(request.shape.root)];
    default: return bytes * (n - 1) / n / least;
  }
}

}  // namespace

std::string_view to_string(DeviceLink link) { return kLinks[static_cast<std::size_t>(link)].name; }

std::string_view in_words(cuda::SlotFormat format) {
  switch (format) {
    case SlotFormat::kSimple: return "";
    case SlotFormat::kPacked: return "packed slots";
    case SlotFormat::kLine: return "lines of 128 bytes";
  }
  return "";
}

std::vector<cuda::RingSet> flagged_rings(const DeviceMachine& machine) {
  const std::size_t ranks = machine.device_of.size();
  bool mapped = true,
       lines = std::ranges::find(kKeepLines, machine.capability) != std::end(kKeepLines);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      const DeviceLink link = machine.link(rank, peer);
      mapped = mapped && link != DeviceLink::kHost && link != DeviceLink::kNetwork;
      lines = lines && (rank == peer || link == DeviceLink::kNvlink);
    }
  }
  if (!mapped) return {};
  constexpr std::size_t kLeast = 1024;
  const std::size_t eights = std::bit_ceil(std::max<std::size_t>(ranks, 8)) / 8;
  const std::size_t slot_bytes =
      std::min(std::max(kKernelShape.flagged_slot_bytes / eights, kLeast), machine.slot_bytes);
  const std::uint32_t lanes = std::min(machine.lanes, kKernelShape.flagged_lanes);
  std::vector<cuda::RingSet> sets{{SlotFormat::kPacked, lanes, slot_bytes}};
  if (lines) sets.push_back({SlotFormat::kLine, lanes, slot_bytes});
  return sets;
}

std::size_t device_size_class(std::size_t bytes) {
  return std::bit_ceil(std::clamp<std::size_t>(bytes, kLeastClass, std::size_t{1} << 40));
}

plan::Shape device_shape(Collective collective, int root, Contract contract,
                         const DeviceMachine& machine) {
  const auto ranks = static_cast<int>(machine.device_of.size());
  plan::Shape shape{collective, ranks, root, machine.groups, machine.weights};
  // Trees use all of a device's links at once, also where links are alike. Between hosts it would
  // take long to find them, for each root.
  const bool rooted = collective == Collective::kBroadcast || collective == Collective::kReduce;
  const bool packs = rooted && machine.graph != nullptr && machine.hosts.of.empty();
  if (!links_differ(machine) && !packs) return shape;
  const plan::CostModel model = cost_model(machine);
  shape.groups = nested(machine, model);
  if (shape.weights.empty()) shape.weights = shares_for(ranks, model);
  const bool any_order = plan::allows_any_order(collective, contract);
  if (any_order || machine.graph != nullptr) shape.trees = trees_of(shape, machine, model);
  if (!any_order && !shape.trees.empty() && !trees_keep_order(shape)) shape.trees.clear();
  return shape;
}

Request device_request(Collective collective, int root, Contract contract,
                       const DeviceMachine& machine) {
  return {.shape = device_shape(collective, root, contract, machine),
          .contract = contract,
          .orders = orders_of(collective, root, contract, machine)};
}

plan::Mapped device_maps(Collective collective, const DeviceMachine& machine) {
  const CollectiveTraits traits = traits_of(collective);
  const bool uneven_ends = collective == Collective::kGather || collective == Collective::kScatter;
  const auto& links = machine.links;
  if (uneven_ends || std::ranges::find(links, DeviceLink::kHost) != links.end()) return {};
  return {!traits.root_input, !traits.root_output};
}

DeviceRecipe device_recipe(const Candidate& candidate, const Request& request,
                           const DeviceMachine& machine) {
  const DevicePlanCosts costs = costs_of(request, machine);
  Request of_class = request;
  of_class.bytes = device_size_class(request.bytes);
  return costs.recipe(candidate, of_class);
}

Result<bool> eager_allowed(Collective collective, const DeviceMachine& machine) {
  TUTTI_TRY(const Override algorithm_override,
            override_for(collective, machine.overrides, "TUTTI_ALGORITHM"));
  return algorithm_override.allows(kEagerName);
}

Result<std::size_t> eager_limit_bytes(Request request, const DeviceMachine& machine) {
  TUTTI_TRY(const Override chosen,
            override_for(request.shape.collective, machine.overrides, "TUTTI_ALGORITHM"));
  const Algorithm* same = find_algorithm(request.shape.collective, "one_shot");
  if (request.shape.rank_count > static_cast<int>(cuda::kMostSources) || same == nullptr) return 0;
  if (chosen.forced == kEagerName) return machine.eager_bytes;
  const DevicePlanCosts costs(machine, flagged_model(machine, SlotFormat::kPacked)),
      plans_costs = costs_of(request, machine);
  Candidate eager;
  eager.algorithm = same;
  std::size_t size_class = 0;
  double plan_us = 0;
  for (request.bytes = machine.eager_bytes; request.bytes >= kLeastEager; request.bytes /= 2) {
    if (size_class != device_size_class(request.bytes)) {
      size_class = device_size_class(request.bytes);
      Request of_class = request;
      of_class.bytes = size_class;
      TUTTI_TRY(const auto plans, plans_of(of_class, plans_costs));
      plan_us = plans.front().microseconds;
    }
    eager.lanes = costs.lanes(*same, request, 0, 0);
    if (costs.estimate_us(eager, request).value_or(0) <= plan_us) return request.bytes;
  }
  return 0;
}

double eager_us(const Request& request, const DeviceMachine& machine) {
  const DevicePlanCosts costs(machine, flagged_model(machine, SlotFormat::kPacked));
  Candidate eager;
  eager.algorithm = find_algorithm(request.shape.collective, "one_shot");
  if (eager.algorithm == nullptr) return 0;
  eager.lanes = costs.lanes(*eager.algorithm, request, 0, 0);
  return costs.estimate_us(eager, request).value_or(0);
}

double message_us(const DeviceMachine& machine, Rank from, Rank to, std::size_t bytes) {
  const plan::CostModel model = cost_model(machine);
  const plan::Path path = model.link(from, to);
  const auto us_at = [bytes](double rate) {
    return rate > 0 ? 1e-3 * static_cast<double>(bytes) / rate : 0;
  };
  double us = us_at(path.own.gigabytes_per_second);
  for (const plan::Use& use : path.uses)
    us = std::max(us, use.share * us_at(model.resources[use.resource].gigabytes_per_second));
  return path.own.latency_us + us;
}

Result<std::vector<Candidate>> device_candidates(Request request, const DeviceMachine& machine) {
  request.bytes = device_size_class(request.bytes);
  return candidates(request, costs_of(request, machine));
}

Result<std::vector<Candidate>> device_plans(Request request, const DeviceMachine& machine) {
  request.bytes = device_size_class(request.bytes);
  return plans_of(request, costs_of(request, machine));
}

DeviceBound device_bound(const Request& request, const DeviceMachine& machine) {
  if (machine.graph != nullptr) return graph_bound(*machine.graph, request, machine);
  return {port_bound_us(request, machine),
          "bytes into and out of each device over all of its links, by published figures"};
}

}  // namespace tutti::planner
