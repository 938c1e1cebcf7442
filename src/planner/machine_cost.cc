#include "planner/machine_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "planner/kernel_phases.h"
#include "topology/embedding/embed.h"
#include "topology/embedding/groups.h"
#include "topology/graph/words.h"

namespace tutti::planner {
namespace {

using topology::EdgeUse;
using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeId;
using topology::NodeKind;

// Simple, LL128, LL and NVLS: NCCL 2.30's cost model (src/graph/tuning.cc: baseLat and hwLat of
// rings over NVLINK, PCI and NET; LL sends as many flags as data, LL128 is taken to reach 92 %).
// Its latency of a whole NVLS all-reduce, 25 us, is two hops here. What ranks on CPUs pay is of
// this library over shared memory (docs/PERFORMANCE.md), and the network as LL's.
constexpr std::array kProtocols{
    Protocol{.name = "simple", .base_us = 8.4, .hop_us = {3.4, 5.7, 14}},
    Protocol{.name = "ll128",
             .needs_nvlink = true,
             .base_us = 14,
             .hop_us = {1.9, 2.5, 4},
             .efficiency = 0.92},
    Protocol{.name = "ll", .base_us = 6.6, .hop_us = {0.6, 1, 2.7}, .efficiency = 0.5},
    Protocol{
        .name = "nvls", .needs_nvlink = true, .joins_in_switch = true, .hop_us = {12.5, 5.7, 18}},
    Protocol{.name = "host", .devices = false, .hop_us = {0.2, 0.2, 2.7}}};

constexpr KernelPhases kIs = kKernelPhases;
constexpr std::array kKernelProtocols{
    Protocol{.name = "slots",
             .base_us = kIs.launch_us,
             .hop_us = {kIs.flag_us, kIs.pcie_us(), kIs.network_us},
             .lane_us = kIs.slots_lane_us(),
             .lane_gigabytes_per_second = kIs.lane_gigabytes_per_second},
    Protocol{.name = "packed",
             .base_us = kIs.launch_us,
             .hop_us = {kIs.packed_us, kIs.packed_pcie_us, kIs.packed_network_us},
             .efficiency = 0.5,
             .lane_us = kIs.flagged_lane_us(),
             .lane_gigabytes_per_second = kIs.lane_gigabytes_per_second,
             .sees_slots = false},
    Protocol{.name = "lines",
             .needs_nvlink = true,
             .base_us = kIs.launch_us,
             .hop_us = {kIs.lines_us, kIs.packed_pcie_us, kIs.packed_network_us},
             .efficiency = 7.0 / 8,
             .lane_us = kIs.flagged_lane_us(),
             .lane_gigabytes_per_second = kIs.lane_gigabytes_per_second,
             .sees_slots = false},
    Protocol{.name = "multimem",
             .needs_nvlink = true,
             .joins_in_switch = true,
             .base_us = kIs.launch_us + 2 * (kIs.slots_lane_us() + kIs.flag_us),  // Two meetings.
             .hop_us = {kIs.load_us, kIs.load_us, kIs.network_us}}};

// NCCL takes 12 GB/s for a NIC of 100 Gb/s (src/graph/topo.h), headers and all; others in
// proportion.
constexpr double kNetworkEfficiency = 0.96;
// To post a send and to see it done, by a driver or a proxy thread. Assumed: one core gets a few
// million messages a second out of a NIC (the gap g of LogGP, Alexandrov et al. 1995).
constexpr double kNicMessageUs = 0.2;
// Amazon's SRD, on top of the protocol's: aws-ofi-nccl's tuner (TUNER_NET_LATENCY).
constexpr double kEfaUs = 20;
constexpr std::string_view kEfaVendor = "0x1d0f";

// What NVSwitches reach when they multicast and reduce: NVLS efficiency in NCCL's model.
double join_efficiency(int sm) { return sm >= 100 ? 0.74 : 0.85; }
constexpr int kFirstToJoin = 90;  // Compute capability.

// Data sheets: memory bandwidth by chip, GB/s; of the usual board where there are several.
struct Memory {
  std::string_view chip;  // "sm90", "gfx942".
  double gigabytes_per_second;
};
constexpr std::array kMemories{
    Memory{"sm60", 732},    Memory{"sm70", 900},    Memory{"sm75", 320},    Memory{"sm80", 1555},
    Memory{"sm86", 768},    Memory{"sm89", 864},    Memory{"sm90", 3350},   Memory{"sm100", 8000},
    Memory{"sm103", 8000},  Memory{"sm120", 1792},  Memory{"sm121", 273},   Memory{"gfx906", 1024},
    Memory{"gfx908", 1228}, Memory{"gfx90a", 1638}, Memory{"gfx910", 1638}, Memory{"gfx940", 5300},
    Memory{"gfx941", 5300}, Memory{"gfx942", 5300}, Memory{"gfx950", 8000}};
// The memory of a chip that is not known: times what its links carry, as of H100 (3350 for 18 links
// of 20.6), and no less than any of the table's with links has. A step moves at most a few bytes
// for each that is sent or received, so it is never what holds a plan up.
constexpr double kMemoryOfLinks = 9, kLeastMemory = 732;
constexpr double kHostRank = 20;  // One core copying (plan/estimate/estimate.h).

// "sm90", "gfx942"; "" where no fact says it. RCCL's files have compute units as "sm".
std::string chip_of(const Node& node) {
  for (const char* key : {"gfx", "gcn"}) {
    std::string_view text = fact(node, key);
    if (text.starts_with("gfx")) text.remove_prefix(3);
    text = text.substr(0, text.find(':'));  // "gfx90a:sramecc+:xnack-"
    if (!text.empty()) return fmt::format("gfx{}", text);
  }
  const auto sm = number_fact(node, "sm");
  return sm && *sm > 0 ? fmt::format("sm{}", *sm) : std::string();
}

std::vector<plan::Use> uses_of(const topology::Route& route) {
  std::vector<plan::Use> uses;
  for (const EdgeUse& use : route)
    uses.push_back({2 * use.link + (use.forward ? 0 : 1), use.share});
  return uses;
}

int compute_capability(const Node& node) { return std::atoi(fact(node, "sm").c_str()); }

Groups group(const topology::Graph& graph, std::span<const NodeId> endpoints) {
  Groups groups;
  const auto found = topology::make_groups(graph, endpoints, false);
  groups.count = static_cast<int>(found.size());
  const std::size_t first = found.empty() ? 1 : found[0].order.size();
  bool alike = true;
  for (const topology::Group& one : found) {
    alike = alike && one.order.size() == first;
    groups.endpoints.insert(groups.endpoints.end(), one.order.begin(), one.order.end());
  }
  groups.size = alike ? static_cast<int>(first) : 1;
  return groups;
}

}  // namespace

std::span<const Protocol> protocols() { return kProtocols; }
std::span<const Protocol> kernel_protocols() { return kKernelProtocols; }

const Protocol* find_protocol(std::string_view name) {
  for (const auto table : {protocols(), kernel_protocols()}) {
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const Protocol& one) { return one.name == name; });
    if (found != table.end()) return &*found;
  }
  return nullptr;
}

std::string protocol_names() {
  const auto names = [](std::span<const Protocol> table) {
    return topology::list_of(table, [](const Protocol& one) { return one.name; });
  };
  return names(kProtocols) + ", " + names(kKernelProtocols);
}

topology::Pattern pattern_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return topology::Pattern::kAllReduce;
    case Collective::kReduceScatter: return topology::Pattern::kReduceScatter;
    case Collective::kAllGather: return topology::Pattern::kAllGather;
    case Collective::kBroadcast: return topology::Pattern::kBroadcast;
    case Collective::kReduce: return topology::Pattern::kReduce;
    case Collective::kGather: return topology::Pattern::kGather;
    case Collective::kScatter: return topology::Pattern::kScatter;
    case Collective::kScan:
    case Collective::kExclusiveScan: return topology::Pattern::kScan;
    case Collective::kAllToAll: break;
  }
  return topology::Pattern::kAllToAll;
}

MachineCost::MachineCost(const topology::Graph& graph, std::span<const NodeId> endpoints)
    : MachineCost(graph, group(graph, endpoints)) {}

MachineCost::MachineCost(const topology::Graph& graph, Groups groups)
    : graph_(graph),
      groups_(std::move(groups)),
      adjacency_(graph),
      router_(graph),
      ways_out_(groups_.endpoints.size()) {}

bool MachineCost::has(const Protocol& protocol) const {
  bool all_gpus = true, all_nvlink = true, all_join = true;
  std::vector<int> links(graph_.nodes.size());  // 1: NVLink; 3: to an NVSwitch.
  for (const Link& link : graph_.links) {
    if (!is_fast(link.kind)) continue;
    for (const auto& [node, other] : {std::pair(link.a, link.b), std::pair(link.b, link.a)})
      links[node.value] |= graph_[other].kind == NodeKind::kNvSwitch ? 3 : 1;
  }
  for (const NodeId place : groups_.endpoints) {
    const Node& node = graph_[place];
    all_gpus = all_gpus && node.kind == NodeKind::kGpu;
    all_nvlink = all_nvlink && links[place.value] != 0;
    all_join = all_join && links[place.value] == 3 && compute_capability(node) >= kFirstToJoin;
  }
  if (protocol.devices != all_gpus) return false;
  if (protocol.joins_in_switch && (!all_join || groups_.size < 2)) return false;
  return !protocol.needs_nvlink || all_nvlink;
}

topology::Quantity MachineCost::memory_rate(NodeId place) const {
  using topology::Origin;
  const Node& node = graph_[place];
  if (node.kind != NodeKind::kGpu) return {kHostRank, Origin::kTable};
  const std::string chip = chip_of(node);
  for (const Memory& memory : kMemories) {
    if (memory.chip == chip) return {memory.gigabytes_per_second, Origin::kTable};
  }
  double links = 0;
  for (const topology::Adjacency::Edge& edge : adjacency_.from(place)) {
    if (graph_.links[edge.link].kind != LinkKind::kInternal) links += bandwidth(graph_, edge).value;
  }
  return {std::max(kLeastMemory, kMemoryOfLinks * links), Origin::kAssumed};
}

std::string MachineCost::assumed() const {
  std::map<LinkKind, int> links;
  for (const Link& link : graph_.links) {
    const auto least = std::min(link.forward.origin, link.backward.origin);
    if (least == topology::Origin::kAssumed) ++links[link.kind];
  }
  std::string text;
  const auto add = [&](const std::string& part) { topology::append(text, part, ", "); };
  for (const auto& [kind, count] : links)
    add(fmt::format("the rate of {} {} link{}", count, to_string(kind), count == 1 ? "" : "s"));
  int memories = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const NodeId place : groups_.endpoints) {
    const topology::Quantity rate = memory_rate(place);
    if (rate.origin != topology::Origin::kAssumed) continue;
    least = std::min(least, rate.value);
    ++memories;
  }
  if (memories > 0)
    add(fmt::format("the memory of {} GPU{} of a chip that is not known, {:.0f} GB/s", memories,
                    memories == 1 ? "" : "s", least));
  return text;
}

double MachineCost::hop_us(const topology::Route& route, const Protocol& protocol) const {
  bool network = false, host = false, efa = false;
  for (const EdgeUse& use : route) {
    const Link& link = graph_.links[use.link];
    network = network || is_network(link.kind);
    host = host || !is_fast(link.kind);
    for (const NodeId end : {link.a, link.b}) {
      const Node& node = graph_[end];
      efa = efa || (node.kind == NodeKind::kNic && fact(node, "vendor") == kEfaVendor);
    }
  }
  if (network) return protocol.hop_us.network + (efa ? kEfaUs : 0);
  return host ? protocol.hop_us.pcie : protocol.hop_us.nvlink;
}

const MachineCost::WayOut& MachineCost::way_out(std::size_t place) {
  auto& known = ways_out_[place];
  if (known) return *known;
  known.emplace();
  const NodeId self = groups_.endpoints[place];
  std::vector<std::pair<int, NodeId>> ports;  // Links to a NIC, and where its port leads.
  for (const auto& [node, distance] : router_.distances(self, topology::Over::kHost)) {
    if (graph_[node].kind != NodeKind::kNic) continue;
    for (const topology::Adjacency::Edge& edge : adjacency_.from(node)) {
      if (is_network(graph_.links[edge.link].kind)) ports.emplace_back(distance, edge.to);
    }
  }
  if (ports.empty()) return *known;
  const auto [nearest, to] = *std::min_element(ports.begin(), ports.end());
  int spare = std::numeric_limits<int>::max();
  for (const auto& [distance, other] : ports) {
    if (other != to) spare = std::min(spare, distance - nearest);
  }
  if (spare == 0) return *known;
  auto out = router_.find(self, to, topology::Over::kAny);
  if (!out) return *known;
  for (const EdgeUse& use : *out) {
    const Link& link = graph_.links[use.link];
    if (link.forward != link.backward) return *known;
  }
  known->to = to;
  known->spare = spare;
  known->out = *out;
  for (auto use = out->rbegin(); use != out->rend(); ++use)
    known->in.push_back({use->link, !use->forward, use->share});
  return *known;
}

// Between groups: the way out, over the network, and the way in. That is what the router would
// find, if leaving by a farther NIC saves fewer links than it costs; but without a search through a
// large machine for every pair.
std::optional<topology::Route> MachineCost::route(std::size_t from, std::size_t to) {
  const auto size = static_cast<std::size_t>(groups_.size);
  if (size > 1 && from / size != to / size) {
    const WayOut &out = way_out(from), &in = way_out(to);
    const auto across = out.to.exists() && in.to.exists()
                            ? router_.hop(out.to, in.to, topology::Over::kNetwork)
                            : std::nullopt;
    if (across) {
      const topology::Route& middle = router_.routes()[*across];
      double links = 0;  // Shares of all that lie side by side are 1 together.
      for (const EdgeUse& use : middle) links += use.share;
      if (links + 0.5 < std::min(out.spare, in.spare)) {
        topology::Route route = out.out;
        route.insert(route.end(), middle.begin(), middle.end());
        route.insert(route.end(), in.in.begin(), in.in.end());
        return route;
      }
    }
  }
  const auto hop = router_.hop(groups_.endpoints[from], groups_.endpoints[to]);
  if (!hop) return std::nullopt;
  return router_.routes()[*hop];
}

std::vector<plan::Use> MachineCost::uses(NodeId from, NodeId to, topology::Over over) {
  const auto hop = router_.hop(from, to, over);
  return hop ? uses_of(router_.routes()[*hop]) : std::vector<plan::Use>{};
}

plan::Path MachineCost::path(Rank from, Rank to, const Protocol& protocol) {
  const auto a = static_cast<std::size_t>(from.value), b = static_cast<std::size_t>(to.value);
  const auto found = route(a, b);
  if (!found) {
    unreachable_ = topology::invalid(
        "simulate: no way leads from {} to {} but through other GPUs; "
        "add the missing links, or choose other ranks",
        graph_[groups_.endpoints[a]].name, graph_[groups_.endpoints[b]].name);
    return {};
  }
  return {LinkCost{hop_us(*found, protocol), 0}, uses_of(*found)};
}

plan::CostModel MachineCost::model(const Protocol& protocol) {
  plan::CostModel model;
  model.step_us = 0;  // What steps take is a lane's, or in the latency of a hop.
  model.lane_us = protocol.lane_us;
  model.lane_gigabytes_per_second = protocol.lane_gigabytes_per_second;
  model.sees_slots = protocol.sees_slots;
  model.resources.reserve(2 * graph_.links.size() + groups_.endpoints.size());
  for (std::size_t i = 0; i < graph_.links.size(); ++i) {
    const Link& link = graph_.links[i];
    for (const bool forward : {true, false}) {
      plan::Resource& at = model.resources.emplace_back();
      const topology::Quantity& rate = forward ? link.forward : link.backward;
      // What was measured is of payload.
      const bool headers = is_network(link.kind) && rate.origin != topology::Origin::kMeasured;
      at.gigabytes_per_second =
          rate.value * protocol.efficiency * (headers ? kNetworkEfficiency : 1);
      const Node& sender = graph_[forward ? link.a : link.b];
      if (is_network(link.kind) && sender.kind == NodeKind::kNic) at.message_us = kNicMessageUs;
      if (!protocol.joins_in_switch || link.kind != LinkKind::kNvlink) continue;
      const Node& into = graph_[forward ? link.b : link.a];
      const Node& out_of = graph_[forward ? link.a : link.b];
      const bool up = into.kind == NodeKind::kNvSwitch && out_of.kind == NodeKind::kGpu;
      const bool down = out_of.kind == NodeKind::kNvSwitch && into.kind == NodeKind::kGpu;
      if (!up && !down) continue;
      at.joins = up ? plan::Resource::Joins::kMulticast : plan::Resource::Joins::kReduce;
      at.join_efficiency = join_efficiency(compute_capability(up ? out_of : into));
      at.mirror = static_cast<std::uint32_t>(2 * i + (forward ? 1 : 0));
    }
  }
  for (const NodeId place : groups_.endpoints)
    model.resources.push_back({.gigabytes_per_second = memory_rate(place).value});
  const auto first = static_cast<std::uint32_t>(2 * graph_.links.size());
  model.compute = [first](Rank place) {
    return plan::Use{first + static_cast<std::uint32_t>(place.value), 1};
  };
  model.link = [this, &protocol](Rank from, Rank to) { return path(from, to, protocol); };
  return model;
}

std::string MachineCost::name_of(std::size_t resource) const {
  const bool one_host = graph_.all(NodeKind::kHost).size() == 1;
  // Without the host where it is clear which: there is one, or the other end has said it.
  const auto name = [&](NodeId node, bool short_form) {
    const Node& at = graph_[node];
    const std::string host = at.host.exists() ? graph_[at.host].name + "/" : "";
    const bool has_host = !host.empty() && at.name.starts_with(host);
    return short_form && has_host ? at.name.substr(host.size()) : at.name;
  };
  const std::size_t link = resource / 2;
  if (link >= graph_.links.size())
    return fmt::format("memory of {}",
                       name(groups_.endpoints[resource - 2 * graph_.links.size()], one_host));
  const Link& at = graph_.links[link];
  const NodeId from = resource % 2 == 0 ? at.a : at.b, to = resource % 2 == 0 ? at.b : at.a;
  return fmt::format("{} -> {} ({})", name(from, one_host),
                     name(to, one_host || graph_[from].host == graph_[to].host),
                     to_string(at.kind));
}

std::string_view MachineCost::kind_of(std::size_t resource) const {
  const std::size_t link = resource / 2;
  return link < graph_.links.size() ? to_string(graph_.links[link].kind) : "memory";
}

std::optional<Error> MachineCost::unreachable() const { return unreachable_; }

// Rings of one group, or of two that stand for all: every second group is passed as the second.
std::optional<std::vector<std::vector<Rank>>> MachineCost::ring_orders() const {
  const auto all = static_cast<std::size_t>(rank_count());
  const auto size = static_cast<std::size_t>(groups_.size);
  const bool alike = groups_.count > 2 && size * static_cast<std::size_t>(groups_.count) == all;
  const std::size_t embedded = alike ? 2 * size : all;
  if (embedded < 2) return std::nullopt;
  const auto found =
      topology::embed(graph_, std::span(groups_.endpoints).first(embedded), {.rings_only = true});
  if (!found) return std::nullopt;
  std::map<NodeId, std::int32_t> places;
  for (std::size_t i = 0; i < embedded; ++i)
    places[groups_.endpoints[i]] = static_cast<std::int32_t>(i);
  std::vector<std::vector<Rank>> orders;
  for (const topology::Lane& lane : found->lanes) {
    std::vector<Rank> order;
    for (const NodeId node : lane.order) order.push_back(Rank{places[node]});
    const auto period = static_cast<std::int32_t>(embedded);
    for (std::size_t i = embedded; i < all; ++i)
      order.push_back(Rank{order[i - embedded].value + period});
    if (order.size() > all) order.resize(all);
    auto sorted = order;  // Groups that a ring does not pass one after the other can't be cut off.
    std::sort(sorted.begin(), sorted.end());
    for (std::int32_t i = 0; i < rank_count(); ++i) {
      if (sorted[static_cast<std::size_t>(i)].value != i) return std::nullopt;
    }
    if (std::find(orders.begin(), orders.end(), order) == orders.end())
      orders.push_back(std::move(order));
  }
  return orders;
}

std::vector<std::vector<std::vector<Rank>>> MachineCost::layouts() const {
  std::vector<Rank> plain;
  for (std::int32_t i = 0; i < rank_count(); ++i) plain.push_back(Rank{i});
  std::vector<std::vector<std::vector<Rank>>> layouts{{plain}};
  if (auto rings = ring_orders(); rings && *rings != layouts[0])
    layouts.push_back(*std::move(rings));
  return layouts;
}

}  // namespace tutti::planner
