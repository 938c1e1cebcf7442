#include "cuda/comm/host_graph.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "base/log.h"
#include "comm/exchange_over.h"
#include "comm/topology.h"
#include "cuda/comm/exchange_status.h"
#include "cuda/comm/graph_costs.h"
#include "topology/graph/text.h"
#include "topology/nccl/complete.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

using Own = HostGraph::Own;
using topology::Graph;
using topology::NodeId;
using topology::NodeKind;

/// With what plans are chosen by, and no more: so hosts of one make are alike, whatever they are
/// called, and however fast their links are while they sleep.
Graph bare(Graph graph) {
  constexpr std::array kKept{"sm", "gfx", "gcn", "vendor", "speed_mbps"};
  const auto hosts = graph.all(NodeKind::kHost);
  const std::string host = hosts.size() == 1 ? graph[hosts.front()].name : std::string();
  graph.notes.clear();
  for (topology::Node& node : graph.nodes) {
    std::erase_if(node.facts, [&](const auto& fact) {
      return std::find(kKept.begin(), kKept.end(), fact.first) == kKept.end();
    });
    if (host.empty()) continue;
    if (node.kind == NodeKind::kHost) node.name = "host0";
    if (node.name.starts_with(host + "/")) node.name.replace(0, host.size(), "host0");
  }
  for (topology::Link& link : graph.links) link.pcie.reset();
  return graph;
}

std::shared_ptr<const Graph> shared(Graph graph) {
  return std::make_shared<const Graph>(std::move(graph));
}

std::string name_of(const DeviceInfo& mine) {
  const std::string host = host_name(mine.peer);
  return host.empty() ? "this host" : host;
}

/// NICs are not asked by verbs: what it knows beyond sysfs does not matter here.
Graph probe() {
  topology::ProbeOptions options;
  options.verbs = "";
  return topology::probe_machine(options).graph;
}

/// The addresses of the devices of this host that ranks have, each once.
std::vector<std::string> buses_here(const DeviceRank& self, const std::vector<DeviceInfo>& all) {
  const std::vector<int>& of = self.machine.hosts.of;
  std::vector<std::string> buses;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!of.empty() && of[rank] != of[self.index()]) continue;
    std::string bus = topology::parse_bus(all[rank].bus);
    if (std::find(buses.begin(), buses.end(), bus) == buses.end()) buses.push_back(std::move(bus));
  }
  return buses;
}

/// Says so once in a process: programs make many communicators.
void warn_of_other_host(const std::string& path, std::string_view why) {
  static std::mutex lock;
  static std::set<std::string> said;
  const std::lock_guard guard(lock);
  if (!said.insert(path).second) return;
  log::warn(log::Part::kDevices,
            "TUTTI_TOPOLOGY={}: it is not used, and the host is probed: {}; TUTTI_TOPOLOGY_DUMP="
            "FILE writes what there is",
            path, why);
}

/// In a file of several hosts this one has to find itself.
Result<Own> read(const DeviceRank& self, const DeviceInfo& mine,
                 const std::vector<DeviceInfo>& all) {
  const std::string& path = self.settings.topology;
  auto found = machine_graph(self, all);
  if (!found) {
    found.error().rank = self.me;
    return std::move(found.error());
  }
  const Graph* const graph = &found->graph;
  if (!found->of_file)
    return Own{name_of(mine), "", fmt::format("probe, not {}", path), "", shared(bare(*graph))};
  Own own{path, "", "", "", shared(bare(*graph))};
  if (graph->all(NodeKind::kHost).size() == 1) return own;
  const std::vector<int>& of = self.machine.hosts.of;
  const std::size_t count =
      of.empty() ? 1 : static_cast<std::size_t>(*std::max_element(of.begin(), of.end())) + 1;
  const auto host = find_host(*graph, host_name(mine.peer),
                              of.empty() ? 0 : static_cast<std::size_t>(of[self.index()]), count);
  if (host)
    own.place = (*graph)[*host].name;
  else
    own = {path, "", "", fmt::format("{}: {}", path, host.error().what), nullptr};
  return own;
}

Result<Own> ask(const DeviceRank& self, const DeviceInfo& mine,
                const std::vector<DeviceInfo>& all) {
  const std::string& setting = self.settings.topology;
  if (setting == "off") return Own{name_of(mine), "", "", "TUTTI_TOPOLOGY=off", nullptr};
  if (setting.empty()) return Own{name_of(mine), "", "probe", "", shared(bare(probe()))};
  return read(self, mine, all);
}

/// What a host tells of itself: its name and place, and, alike on hosts that are, the rest: lines
/// that say where the graph is from, or why there is none, and its text.
struct Told {
  explicit Told(const Own& own) : name(own.name + '\n' + own.place + '\n'), rest(own.how + '\n') {
    const std::string text = own.graph == nullptr ? "" : topology::print(*own.graph);
    rest += text.size() > kMostTopologyBytes ? fmt::format("it has {} bytes\n", text.size())
                                             : own.why_not + '\n' + text;
  }

  std::string name, rest;
};

Own to_own(std::string_view told) {
  Own own;
  for (std::string* line : {&own.name, &own.place, &own.how, &own.why_not}) {
    const std::size_t end = std::min(told.find('\n'), told.size());
    *line = told.substr(0, end);
    told.remove_prefix(std::min(end + 1, told.size()));
  }
  if (!own.why_not.empty() || told.empty()) return own;
  auto graph = topology::parse_graph(told, own.name);
  if (graph)
    own.graph = shared(*std::move(graph));
  else
    own.why_not = graph.error().what;
  return own;
}

struct Fingerprint {
  ExchangedStatus status;
  std::uint64_t hash = 0;
};

struct Host {
  std::string name, place;
  std::shared_ptr<const Own> kind;  // What it told, or the first that is alike.
};
using Hosts = std::vector<Host>;

/// Collective.
Result<Hosts> share(DeviceRank& self, const std::vector<DeviceInfo>& infos,
                    const HostGraph& known) {
  const std::vector<int>& of = self.machine.hosts.of;
  std::vector<std::size_t> speakers;  // By host, its lowest rank.
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(self.rank_count); ++rank) {
    if ((of.empty() ? 0U : static_cast<std::size_t>(of[rank])) == speakers.size())
      speakers.push_back(rank);
  }
  const bool speaks = std::find(speakers.begin(), speakers.end(), self.index()) != speakers.end();
  Result<Own> own = known.own;
  if (speaks && !known.asked) own = ask(self, infos[self.index()], infos);
  Fingerprint print;
  std::optional<Told> told;
  if (speaks && own) print.hash = hash_text(told.emplace(*own).rest);
  TUTTI_TRY(const auto prints,
            exchange_status(self.control, print, own ? ok() : Status(own.error())));
  std::map<std::uint64_t, std::size_t> tells;  // By hash, the rank that tells.
  for (const std::size_t rank : speakers) tells.emplace(prints[rank].hash, rank);
  std::string said = told ? told->name : "";
  if (told && tells.at(print.hash) == self.index()) said += told->rest;
  TUTTI_TRY(const auto all, exchange_over(self.control, std::as_bytes(std::span(said))));
  std::map<std::uint64_t, std::shared_ptr<const Own>> kinds;
  Hosts hosts;
  for (const std::size_t rank : speakers) {
    const Bytes bytes = all[rank].bytes.value_or(Bytes{});
    Own theirs = to_own({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    const std::string name = theirs.name, place = theirs.place;
    const auto [kind, fresh] = kinds.try_emplace(prints[rank].hash);
    if (fresh) kind->second = std::make_shared<const Own>(std::move(theirs));
    hosts.push_back({name, place, kind->second});
  }
  return hosts;
}

/// "topology of node1 (probe; 3 alike)", "topology of 2 kinds of hosts: node1 (3 alike), node4",
/// "topology of cluster.topo (3 of its hosts)".
std::string in_words(const Hosts& hosts) {
  std::vector<std::pair<const Own*, int>> kinds;
  for (const Host& host : hosts) {
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& one) { return one.first == host.kind.get(); });
    if (known == kinds.end())
      kinds.emplace_back(host.kind.get(), 1);
    else
      ++known->second;
  }
  std::vector<std::string> words;
  for (const auto& [kind, count] : kinds) {
    std::string more = kinds.size() == 1 ? kind->how : "";
    const char* are = kind->place.empty() ? "alike" : "of its hosts";
    if (count > 1) more += fmt::format("{}{} {}", more.empty() ? "" : "; ", count, are);
    words.push_back(more.empty() ? kind->name : fmt::format("{} ({})", kind->name, more));
  }
  if (words.size() == 1) return "topology of " + words.front();
  return fmt::format("topology of {} kinds of hosts: {}", words.size(), fmt::join(words, ", "));
}

/// Why plans cannot be chosen by the graphs of these hosts; empty: they can.
std::string missing(const Hosts& hosts) {
  for (const Host& host : hosts) {
    if (host.kind->graph != nullptr) continue;
    const bool all = std::all_of(hosts.begin(), hosts.end(),
                                 [&](const Host& other) { return other.kind == host.kind; });
    return all ? host.kind->why_not : fmt::format("{}: {}", host.name, host.kind->why_not);
  }
  return {};
}

/// Where the hosts are in the one graph that they all read; none: each has its own.
Result<std::vector<NodeId>> places_in_one(const Hosts& hosts) {
  std::vector<NodeId> places;
  const auto& first = hosts.front().kind;
  for (const Host& host : hosts) {
    if (host.kind != first || host.place.empty()) return std::vector<NodeId>();
    const NodeId place = first->graph->find(host.place);
    if (std::find(places.begin(), places.end(), place) != places.end())
      return Error{Code::kUnsupported,
                   fmt::format("two hosts of the ranks are its {}", host.place)};
    places.push_back(place);
  }
  return places;
}

}  // namespace

Result<MachineGraph> machine_graph(const DeviceRank& self, const std::vector<DeviceInfo>& all) {
  const std::string& path = self.settings.topology;
  if (path.empty() || path == "off") return MachineGraph{probe(), false};
  TUTTI_TRY(auto file, read_topology_file(path));
  if (!file.partial) return MachineGraph{std::move(file.graph), true};
  Graph probed = probe();
  const auto buses = buses_here(self, all);
  const bool is_of_here = topology::shares_address(file.graph, probed, buses);
  topology::complete(file.graph, probed);
  const auto missing = topology::missing_gpus(file.graph, buses);
  if (is_of_here && missing.empty()) return MachineGraph{std::move(file.graph), true};
  warn_of_other_host(path, is_of_here ? "neither it nor the host shows device " + missing.front()
                                      : "it has no PCI address of this host");
  return MachineGraph{std::move(probed), false};
}

Status learn_graph(DeviceRank& self, const std::vector<DeviceInfo>& all, const HostGraph& known) {
  planner::DeviceMachine& machine = self.machine;
  HostGraph& own = self.topology;
  const auto& devices = machine.device_of;
  if (*std::max_element(devices.begin(), devices.end()) == 0) {
    own.why_not = "there is one device";
    return ok();
  }
  TUTTI_TRY(const Hosts hosts, share(self, all, known));
  const std::vector<int>& of = machine.hosts.of;
  const Host& here = hosts[of.empty() ? 0 : static_cast<std::size_t>(of[self.index()])];
  own = {true, *here.kind, in_words(hosts), missing(hosts)};
  own.own.name = here.name;
  own.own.place = here.place;
  if (!own.why_not.empty()) return ok();
  std::vector<std::string> buses;
  for (const DeviceInfo& one : all) buses.push_back(topology::parse_bus(one.bus));
  std::vector<std::shared_ptr<const Graph>> graphs;
  for (const Host& host : hosts) graphs.push_back(host.kind->graph);
  const auto find = [&]() -> Result<planner::GraphCosts> {
    TUTTI_TRY(const auto places, places_in_one(hosts));
    return planner::graph_costs(graphs, machine, buses, places);
  };
  auto costs = find();
  if (!costs) {
    own.why_not = fmt::format("{}: {}", own.source, costs.error().what);
    return ok();
  }
  if (hosts.size() > 1) own.source += "; between hosts: " + costs->between_hosts;
  machine.graph = std::make_shared<const planner::GraphCosts>(*std::move(costs));
  return ok();
}

}  // namespace tutti
