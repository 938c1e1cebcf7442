#include "cuda/comm/graph_costs.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/machine_cost.h"
#include "topology/bounds/bound.h"
#include "topology/join/repeat.h"

namespace tutti::planner {
namespace {

using topology::Graph;
using topology::NodeId;
using topology::NodeKind;
using topology::Over;

/// How kernels hand over slots between devices.
constexpr std::string_view kProtocol = "slots";
/// What passes the memory of the host takes twice as long as what goes to a device, as where CUDA
/// alone says what there is (cuda/comm/select.cc).
constexpr double kStagedShare = 2;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();
constexpr double kSameLinks = 1e-6;
/// The fact by which NICs are joined (topology/join/repeat.h).
const std::string kNicRate = "speed_mbps";

using Uses = GraphCosts::Uses;

/// The same resources from another first one on, in part.
void add(Uses& all, const Uses& more, std::uint32_t first = 0, double share = 1) {
  for (const plan::Use& use : more) all.push_back({first + use.resource, use.share * share});
}

Error not_told(std::string what) { return {Code::kUnsupported, std::move(what)}; }

/// Each resource once.
Uses together(const Uses& uses) {
  Uses made;
  for (const plan::Use& use : uses) {
    const auto known = std::find_if(made.begin(), made.end(), [&](const plan::Use& one) {
      return one.resource == use.resource;
    });
    if (known == made.end())
      made.push_back(use);
    else
      known->share += use.share;
  }
  return made;
}

/// The graph of one host or of several that are alike, and what is known of ways in it.
struct Kind {
  Kind(Graph own, const std::shared_ptr<const Graph>& told)
      : graph(std::move(own)), of(told.get()), cost(graph, Groups{}) {}

  /// The NICs by which it is joined to other hosts; of several hosts those that lead to a network.
  std::vector<NodeId> nics(bool several = false) const {
    const topology::Adjacency adjacency(graph);
    std::vector<NodeId> found = graph.all(NodeKind::kNic);
    std::erase_if(found, [&](NodeId nic) {
      if (!several) return topology::fact(graph[nic], kNicRate).empty();
      const auto& edges = adjacency.from(nic);
      return std::none_of(edges.begin(), edges.end(), [&](const topology::Adjacency::Edge& edge) {
        return graph.links[edge.link].kind == topology::LinkKind::kPort;
      });
    });
    return found;
  }

  const Graph graph;
  const Graph* of;
  MachineCost cost;
  std::map<std::tuple<NodeId, NodeId, DeviceLink>, std::uint32_t> ways;  // In GraphCosts::local.
};

/// What goes from one device to another that way.
Uses uses_between(MachineCost& cost, NodeId from, NodeId to, DeviceLink link) {
  if (link == DeviceLink::kNvlink) return cost.uses(from, to, Over::kFast);
  if (link == DeviceLink::kPcie) return cost.uses(from, to, Over::kSlow);
  const NodeId memory = topology::numa_above(cost.graph(), to, true);
  if (!memory.exists()) return {};
  auto uses = cost.uses(from, memory, Over::kSlow);
  const auto on = cost.uses(memory, to, Over::kSlow);
  if (uses.empty() || on.empty()) return {};
  add(uses, on);
  for (plan::Use& use : uses) use.share *= kStagedShare;
  return uses;
}

/// A host's NICs where nothing says what its own carry, or that ranks go by these: one that is next
/// to all memory.
Graph with_network(Graph graph, const NetworkCost& network) {
  const NodeId host = graph.all(NodeKind::kHost).front();
  for (const NodeId nic : graph.all(NodeKind::kNic)) graph[nic].facts.erase(kNicRate);
  topology::Node node{NodeKind::kNic, graph[host].name + "/network", host};
  while (graph.find(node.name).exists()) node.name += "+";
  node.facts[kNicRate] = fmt::format("{}", network.link.gigabytes_per_second * 8000);
  const NodeId nic = graph.add(std::move(node));
  for (const NodeId memory : graph.all(NodeKind::kNuma))
    graph.join(topology::LinkKind::kInternal, memory, nic, topology::kInside);
  return graph;
}

class Maker {
 public:
  Maker(const DeviceMachine& machine, std::span<const std::string> buses,
        std::span<const NodeId> places)
      : machine_(machine), buses_(buses), places_(places) {
    for (std::size_t rank = 0; rank < machine.device_of.size(); ++rank)
      costs_.host.push_back(
          machine.hosts.of.empty() ? 0 : static_cast<std::uint32_t>(machine.hosts.of[rank]));
  }

  Result<GraphCosts> run(std::span<const std::shared_ptr<const Graph>> hosts) {
    TUTTI_RETURN_IF_ERROR(join(hosts));
    TUTTI_RETURN_IF_ERROR(find_devices());
    MachineCost cost(costs_.graph,
                     Groups{costs_.devices, static_cast<int>(costs_.devices.size()), 1});
    costs_.resources = cost.model(*find_protocol(kProtocol)).resources;
    costs_.memories = static_cast<std::uint32_t>(2 * costs_.graph.links.size());
    const Protocol& switched = *find_protocol(kMulticastProtocol);
    if (cost.has(switched)) costs_.multicast = cost.model(switched).resources;
    if (by_figure_) set_figures();
    TUTTI_RETURN_IF_ERROR(find_local(cost));
    if (hosts.size() > 1) TUTTI_RETURN_IF_ERROR(find_remote(cost));
    return std::move(costs_);
  }

 private:
  const std::string& name(NodeId node) const { return costs_.graph[node].name; }
  /// Where it may be any of several hosts.
  std::string host_words(std::size_t host) const {
    return kind_of_.size() == 1 ? "it" : fmt::format("host{}", host);
  }

  /// Makes the graph of all.
  Status join(std::span<const std::shared_ptr<const Graph>> hosts) {
    for (const auto& told : hosts) {
      auto known = std::find_if(kinds_.begin(), kinds_.end(),
                                [&](const auto& kind) { return kind->of == told.get(); });
      if (known == kinds_.end()) {
        const bool one = hosts.size() == 1;
        const std::size_t in_it = told->all(NodeKind::kHost).size();
        if (!one && places_.empty() && in_it != 1)
          return not_told(fmt::format("one has {} hosts in it; each needs its own", in_it));
        kinds_.push_back(std::make_unique<Kind>(
            one || !places_.empty() ? *told : topology::without_network(*told), told));
        known = kinds_.end() - 1;
      }
      kind_of_.push_back(known->get());
    }
    if (hosts.size() > 1 && places_.empty()) return join_kinds();
    costs_.graph = kinds_.front()->graph;
    costs_.first_resource.assign(hosts.size(), 0);
    nodes_.assign(hosts.size(), costs_.graph.all());
    if (hosts.size() > 1) costs_.between_hosts = "as it says";
    return ok();
  }

  Status join_kinds() {
    std::vector<std::size_t> nics;
    for (const auto& kind : kinds_) nics.push_back(kind->nics().size());
    const auto [least, most] = std::minmax_element(nics.begin(), nics.end());
    by_figure_ = !machine_.by_nics || *least == 0;
    if (by_figure_) use_figures();
    std::vector<const Graph*> graphs;
    for (const Kind* kind : kind_of_) graphs.push_back(&kind->graph);
    const bool rails = !by_figure_ && *least == *most;
    TUTTI_TRY(auto all, topology::joined(graphs, rails ? "rail" : "plane"));
    costs_.graph = std::move(all.graph);
    nodes_ = std::move(all.nodes);
    for (const std::uint32_t link : all.first_link) costs_.first_resource.push_back(2 * link);
    costs_.between_hosts =
        by_figure_ ? fmt::format("{:.3g} GB/s a host", network().link.gigabytes_per_second)
        : rails    ? fmt::format("{} rail{}", *most, *most == 1 ? "" : "s")
                   : fmt::format("{} to {} NICs a host on one network", *least, *most);
    return ok();
  }

  const NetworkCost& network() const { return machine_.hosts.cost; }

  /// Gives all hosts a NIC that stands for the way between them.
  void use_figures() {
    for (auto& kind : kinds_) {
      auto made = std::make_unique<Kind>(with_network(kind->graph, network()), nullptr);
      std::replace(kind_of_.begin(), kind_of_.end(), kind.get(), made.get());
      kind = std::move(made);
    }
  }
  void set_figures() {
    for (std::size_t link = 0; link < costs_.graph.links.size(); ++link) {
      if (!is_network(costs_.graph.links[link].kind)) continue;
      for (const std::size_t at : {2 * link, 2 * link + 1}) {
        costs_.resources[at].gigabytes_per_second = network().link.gigabytes_per_second;
        costs_.resources[at].message_us = at % 2 == 0 ? network().message_us : 0;
      }
    }
  }

  Status find_devices() {
    std::set<NodeId> taken;
    for (std::size_t rank = 0; rank < machine_.device_of.size(); ++rank) {
      const auto device = static_cast<std::size_t>(machine_.device_of[rank]);
      if (device < devices_.size()) continue;
      const std::uint32_t host = costs_.host[rank];
      const Graph& graph = kind_of_[host]->graph;
      auto gpus = graph.all(NodeKind::kGpu);
      std::erase_if(gpus, [&](NodeId gpu) { return !is_of(graph[gpu], host); });
      const auto found = std::find_if(gpus.begin(), gpus.end(),
                                      [&](NodeId gpu) { return graph[gpu].bus == buses_[rank]; });
      if (found == gpus.end() || buses_[rank].empty())
        return not_told(fmt::format("{} has no GPU at {}", host_words(host), buses_[rank]));
      devices_.push_back(*found);
      costs_.devices.push_back(nodes_[host][found->value]);
      if (!taken.insert(costs_.devices.back()).second) {
        return not_told(fmt::format("two devices are parts of {}", name(costs_.devices.back())));
      }
    }
    return ok();
  }

  /// Whether a node is of this host, in a graph of several.
  bool is_of(const topology::Node& node, std::uint32_t host) const {
    return places_.empty() || node.host == places_[host];
  }

  NodeId device_at(std::size_t rank) const {
    return devices_[static_cast<std::size_t>(machine_.device_of[rank])];
  }

  /// What ranks of one host take.
  Status find_local(const MachineCost& cost) {
    std::vector<std::vector<std::size_t>> ranks(kind_of_.size());
    costs_.local.emplace_back();  // On one device.
    for (std::size_t rank = 0; rank < costs_.host.size(); ++rank) {
      auto& here = ranks[costs_.host[rank]];
      costs_.place.push_back(static_cast<std::uint32_t>(here.size()));
      here.push_back(rank);
    }
    for (std::size_t from = 0; from < costs_.host.size(); ++from) {
      auto& row = costs_.local_at.emplace_back();
      for (const std::size_t to : ranks[costs_.host[from]]) {
        TUTTI_TRY(row.emplace_back(), local_way(from, to, cost));
      }
    }
    return ok();
  }

  Result<std::uint32_t> local_way(std::size_t from, std::size_t to, const MachineCost& all) {
    const DeviceLink link = machine_.link(from, to);
    if (link == DeviceLink::kSame) return 0;
    Kind& kind = *kind_of_[costs_.host[from]];
    const NodeId a = device_at(from), b = device_at(to);
    const auto [known, fresh] =
        kind.ways.try_emplace({a, b, link}, static_cast<std::uint32_t>(costs_.local.size()));
    if (!fresh) return known->second;
    Uses uses = uses_between(kind.cost, a, b, link);
    if (uses.empty()) {
      return not_told(fmt::format("it joins {} and {} otherwise than by {}, as CUDA does",
                                  kind.graph[a].name, kind.graph[b].name, to_string(link)));
    }
    Uses everywhere;
    add(everywhere, uses, costs_.first_resource[costs_.host[from]]);
    TUTTI_RETURN_IF_ERROR(check(everywhere, all));
    costs_.local.push_back(std::move(uses));
    return known->second;
  }

  Status check(const Uses& uses, const MachineCost& all) const {
    for (const plan::Use& use : uses) {
      if (costs_.resources[use.resource].gigabytes_per_second <= 0)
        return not_told(fmt::format("what {} carries is not known", all.name_of(use.resource)));
    }
    return ok();
  }

  /// How ranks get to other hosts.
  Status find_remote(const MachineCost& cost) {
    const topology::Adjacency adjacency(costs_.graph);
    TUTTI_RETURN_IF_ERROR(find_own_links(cost));
    std::map<std::pair<const Kind*, NodeId>, std::vector<NicPath>> paths;
    for (std::size_t rank = 0; rank < costs_.host.size(); ++rank) {
      Kind& kind = *kind_of_[costs_.host[rank]];
      const auto [known, fresh] = paths.try_emplace({&kind, device_at(rank)});
      if (fresh) known->second = nearest_nics(kind, device_at(rank), costs_.host[rank]);
      if (known->second.empty()) {
        return not_told(
            fmt::format("it shows no way from {} to a NIC", kind.graph[device_at(rank)].name));
      }
      GraphCosts::Remote remote = remote_of(known->second, costs_.host[rank], adjacency);
      for (const Uses* uses :
           {&remote.out, &remote.in, &remote.port_out, &remote.port_in, &remote.up, &remote.down})
        TUTTI_RETURN_IF_ERROR(check(*uses, cost));
      costs_.remote.push_back(std::move(remote));
    }
    return ok();
  }

  /// Between NICs of two hosts, in a graph of all.
  Status find_own_links(const MachineCost& cost) {
    const auto& links = costs_.graph.links;
    for (std::uint32_t link = 0; link < links.size(); ++link) {
      if (links[link].kind != topology::LinkKind::kNetwork) continue;
      const auto host_of = [&](NodeId end) {
        const auto at = std::find(places_.begin(), places_.end(), costs_.graph[end].host);
        return static_cast<std::uint32_t>(at - places_.begin());
      };
      const std::uint32_t a = host_of(links[link].a), b = host_of(links[link].b);
      if (a >= places_.size() || b >= places_.size()) continue;
      const Uses there{{2 * link, 1}}, back{{2 * link + 1, 1}};
      TUTTI_RETURN_IF_ERROR(check(there, cost));
      TUTTI_RETURN_IF_ERROR(check(back, cost));
      costs_.own_links.insert({{{a, b}, there}, {{b, a}, back}});
    }
    return ok();
  }

  /// A NIC of a host, and the ways there and back.
  struct NicPath {
    NodeId nic;
    Uses out, in;
  };
  /// The nearest NICs.
  std::vector<NicPath> nearest_nics(Kind& kind, NodeId device, std::uint32_t host) const {
    const NodeId memory = topology::numa_above(kind.graph, device, true);
    const NodeId from = machine_.gpudirect ? device : memory;
    std::vector<NicPath> paths;
    if (!from.exists()) return paths;
    double nearest = kUnlimited;
    for (const NodeId nic : kind.nics(!places_.empty())) {
      if (!is_of(kind.graph[nic], host)) continue;
      NicPath path{nic, kind.cost.uses(from, nic, Over::kSlow),
                   kind.cost.uses(nic, from, Over::kSlow)};
      double links = 0;
      for (const plan::Use& use : path.out) links += use.share;
      if (path.out.empty() || path.in.empty() || links > nearest + kSameLinks) continue;
      if (links < nearest - kSameLinks) paths.clear();
      nearest = links;
      paths.push_back(std::move(path));
    }
    if (machine_.gpudirect) return paths;
    const Uses to_memory = kind.cost.uses(device, memory, Over::kSlow),
               from_memory = kind.cost.uses(memory, device, Over::kSlow);
    if (to_memory.empty() || from_memory.empty()) return {};
    for (NicPath& path : paths) {
      add(path.out, to_memory, 0, kStagedShare);
      add(path.in, from_memory, 0, kStagedShare);
    }
    return paths;
  }

  /// By all of these NICs of a host in equal shares.
  GraphCosts::Remote remote_of(const std::vector<NicPath>& paths, std::uint32_t host,
                               const topology::Adjacency& adjacency) const {
    GraphCosts::Remote made;
    const double share = 1 / static_cast<double>(paths.size());
    const auto pass = [](const topology::Adjacency::Edge& edge, double part, Uses& there,
                         Uses& back) {
      const std::uint32_t at = 2 * edge.link;
      there.push_back({at + (edge.forward ? 0 : 1), part});
      back.push_back({at + (edge.forward ? 1 : 0), part});
    };
    for (const NicPath& path : paths) {
      add(made.out, path.out, costs_.first_resource[host], share);
      add(made.in, path.in, costs_.first_resource[host], share);
      const NodeId nic = nodes_[host][path.nic.value];
      for (const auto& port : adjacency.from(nic)) {
        if (costs_.graph.links[port.link].kind != topology::LinkKind::kPort) continue;
        pass(port, share, made.port_out, made.port_in);
        made.leaves.push_back(port.to);
        std::vector<topology::Adjacency::Edge> above;
        for (const auto& edge : adjacency.from(port.to)) {
          if (costs_.graph.links[edge.link].kind == topology::LinkKind::kNetwork)
            above.push_back(edge);
        }
        for (const auto& edge : above)
          pass(edge, share / static_cast<double>(above.size()), made.up, made.down);
      }
    }
    for (Uses* uses : {&made.out, &made.in, &made.port_out, &made.port_in, &made.up, &made.down})
      *uses = together(*uses);
    return made;
  }

  const DeviceMachine& machine_;
  const std::span<const std::string> buses_;
  const std::span<const NodeId> places_;  // By host: in a graph of all; empty: each has its own.
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::vector<Kind*> kind_of_;              // By host.
  std::vector<std::vector<NodeId>> nodes_;  // By host and node of its kind.
  std::vector<NodeId> devices_;             // By device: in its kind.
  bool by_figure_ = false;                  // The network is as Hosts::cost says.
  GraphCosts costs_;
};

}  // namespace

GraphCosts::Uses GraphCosts::uses(std::size_t from, std::size_t to) const {
  Uses all;
  if (host[from] == host[to]) {
    add(all, local[local_at[from][place[to]]], first_resource[host[from]]);
    return all;
  }
  const Remote &out = remote[from], &in = remote[to];
  all = out.out;
  const auto own = own_links.find({host[from], host[to]});
  if (own != own_links.end()) {
    add(all, own->second);
  } else {
    add(all, out.port_out);
    if (out.leaves != in.leaves) {
      add(all, out.up);
      add(all, in.down);
    }
    add(all, in.port_in);
  }
  add(all, in.in);
  return all;
}

Result<GraphCosts> graph_costs(std::span<const std::shared_ptr<const Graph>> hosts,
                               const DeviceMachine& machine,
                               std::span<const std::string> bus_of_rank,
                               std::span<const NodeId> places) {
  return Maker(machine, bus_of_rank, places).run(hosts);
}

DeviceBound graph_bound(const GraphCosts& costs, const Request& request,
                        const DeviceMachine& machine) {
  if (costs.devices.size() < machine.device_of.size())
    return {0, "none is known where ranks share a device"};
  auto pattern = pattern_of(request.shape.collective);
  // Switches that add up have every cut crossed by the message once in each direction, as in a
  // broadcast.
  const bool joins = !costs.multicast.empty() && machine.no_multicast.empty();
  if (joins && request.shape.collective == Collective::kAllReduce &&
      request.contract == Contract::kRelaxed)
    pattern = topology::Pattern::kBroadcast;
  // Here each rank has a device of its own.
  const auto device = [&](int rank) {
    return static_cast<std::size_t>(machine.device_of[static_cast<std::size_t>(rank)]);
  };
  const auto found = topology::bound(
      costs.graph, pattern, costs.devices,
      ends_of(request.shape.collective, request.shape.root, request.shape.rank_count, device));
  if (!found) return {0, found.error().what};
  // Seconds a MB are microseconds a byte.
  return {found->seconds_per_mb.value() * static_cast<double>(request.bytes), found->cut.words};
}

}  // namespace tutti::planner
