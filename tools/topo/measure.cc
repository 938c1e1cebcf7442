// tutti topo measure: the machine as a graph with figures that were measured here: what memory,
// links and networks carry.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "base/output.h"
#include "comm/state.h"
#include "comm/topology.h"
#include "perf/sweep/ranks.h"
#include "planner/planner.h"
#include "tools/progress.h"
#include "tools/topo/measure_host.h"
#include "tools/topo/topo.h"
#include "tools/tune/rates.h"
#include "topology/graph/text.h"
#include "topology/graph/words.h"
#include "topology/join/repeat.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeId;
using topology::NodeKind;
using topology::Origin;

constexpr std::string_view kPlane = "plane";

struct MeasureOptions {
  GraphSource machine;  // This one, or the one that is pretended.
  std::string output;
  bool force = false;
};

struct Measured {
  Graph graph;
  std::string said;  // A table for people.
};

/// NICs that lead out of a host, of which there is at least one.
std::vector<NodeId> nics_of(const Graph& graph, NodeId host) {
  std::vector<NodeId> nics;
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    if (graph[nic].host == host && !fact(graph[nic], "speed_mbps").empty()) nics.push_back(nic);
  }
  return nics;
}

/// The host without its network, with NICs that share the measured rate: those with the fastest
/// ports, or else all, or one of which the machine says nothing (in a container).
Graph with_nics(const Graph& host, double rate) {
  Graph made = topology::without_network(host);
  const NodeId self = made.all(NodeKind::kHost).front();
  std::vector<NodeId> nics = nics_of(made, self);
  if (nics.empty()) nics = made.all(NodeKind::kNic);
  if (nics.empty()) {
    nics.push_back(made.add({NodeKind::kNic, made[self].name + "/network", self}));
    made.join(LinkKind::kInternal, made.all(NodeKind::kNuma).front(), nics.front(),
              topology::kInside);
  }
  const double mbps = std::max(1.0, 8000 * rate / static_cast<double>(nics.size()));
  for (const NodeId nic : nics) made[nic].facts["speed_mbps"] = fmt::format("{:.0f}", mbps);
  return made;
}

/// All hosts on one network, as measured.
Result<Graph> merged(const std::vector<Graph>& hosts, const NetworkRates& rates, double hop_us) {
  std::vector<Graph> bare;
  std::vector<const Graph*> parts;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    bare.push_back(with_nics(hosts[host], rates.hosts[host]));
  for (const Graph& one : bare) parts.push_back(&one);
  TUTTI_TRY(auto made, topology::joined(parts, kPlane));
  Graph& graph = made.graph;
  const auto all = graph.all(NodeKind::kHost);
  for (Link& link : graph.links) {
    if (link.kind != LinkKind::kPort) continue;
    const NodeId nic = graph[link.a].kind == NodeKind::kNic ? link.a : link.b;
    const auto host = std::find(all.begin(), all.end(), graph[nic].host) - all.begin();
    const double share = static_cast<double>(nics_of(graph, graph[nic].host).size());
    link.forward =
        link.backward = {rates.hosts[static_cast<std::size_t>(host)] / share, Origin::kMeasured};
    link.latency_us = {hop_us / 2, Origin::kMeasured};
  }
  for (const auto& [pair, rate] : rates.pairs) {
    const auto at = [](int host) { return static_cast<std::size_t>(host); };
    if (rate * kAlikeRates >= std::min(rates.hosts[at(pair.first)], rates.hosts[at(pair.second)]))
      continue;
    Link& own = graph.join(LinkKind::kNetwork, nics_of(graph, all[at(pair.first)]).front(),
                           nics_of(graph, all[at(pair.second)]).front(), {rate, Origin::kMeasured});
    own.latency_us = {hop_us, Origin::kMeasured};
  }
  return std::move(graph);
}

std::string network_words(const Graph& graph, const NetworkRates& rates, double hop_us) {
  std::string text = fmt::format("network: {:.3g} us for 8 bytes both ways\n", hop_us);
  const auto hosts = graph.all(NodeKind::kHost);
  const auto name = [&](int host) {
    const Node& node = graph[hosts[static_cast<std::size_t>(host)]];
    const std::string& own = fact(node, "hostname");
    return own.empty() ? node.name : own;
  };
  for (std::size_t host = 0; host < rates.hosts.size(); ++host)
    text += fmt::format("  {:<24} {:>7.3f} GB/s each way\n", name(static_cast<int>(host)),
                        rates.hosts[host]);
  for (const auto& [pair, rate] : rates.pairs) {
    const double both = std::min(rates.hosts[static_cast<std::size_t>(pair.first)],
                                 rates.hosts[static_cast<std::size_t>(pair.second)]);
    if (rate * kAlikeRates < both)
      text += fmt::format("  {:<24} {:>7.3f} GB/s: a slow link\n",
                          name(pair.first) + " - " + name(pair.second), rate);
  }
  return text;
}

/// This host alone.
Result<Measured> measure_here(const GraphSource& machine, const Settings& settings) {
  TUTTI_TRY(auto probed, load(machine));
  Measured measured{std::move(probed.graph), ""};
  TUTTI_TRY(measured.said, measure_host(measured.graph, settings));
  return measured;
}

/// The same as a host tells it: the table, and behind a zero byte the graph.
Result<std::string> measured_text(const GraphSource& machine, const Settings& settings) {
  TUTTI_TRY(const Measured here, measure_here(machine, settings));
  return here.said + '\0' + topology::print(here.graph);
}

/// Hosts on one machine (namespaces, containers) measure one after the other: this one's turn, and
/// how many turns there are. Collective.
Result<std::pair<int, int>> turn_of(Communicator& comm, bool speaks) {
  std::string machine;
  if (speaks) std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), machine);
  TUTTI_TRY(const auto told, exchange_over(comm, std::as_bytes(std::span(machine))));
  std::map<std::string, int> hosts;
  std::pair<int, int> turn{0, 1};
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (told[rank].error) return *told[rank].error;
    const Bytes none, &bytes = told[rank].bytes ? *told[rank].bytes : none;
    if (bytes.empty()) continue;
    const int number =
        hosts[std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())]++;
    if (static_cast<int>(rank) == comm.rank().value) turn.first = number;
    turn.second = std::max(turn.second, number + 1);
  }
  return turn;
}

/// All hosts of a communicator; rank 0 gets the graph. Collective.
Result<Measured> measure_hosts(const GraphSource& machine, Communicator& comm) {
  const std::vector<int> of = Insides::of(comm).selector->inputs().hosts.of;
  const auto me = static_cast<std::size_t>(comm.rank().value);
  // The lowest rank of each host, while the others of it wait.
  const bool speaks =
      of.empty() ? me == 0
                 : std::find(of.begin(), of.end(), of[me]) - of.begin() == comm.rank().value;
  TUTTI_TRY(const auto turn, turn_of(comm, speaks));
  // A failure waits until all have had their turn: the others are in the same calls till then.
  Result<std::string> text = std::string();
  for (int now = 0; now < turn.second; ++now) {
    TUTTI_RETURN_IF_ERROR(comm.barrier());
    if (speaks && now == turn.first) text = measured_text(machine, Insides::of(comm).settings);
  }
  if (!text) {
    (void)end_exchange_over(comm, &text.error());
    return std::move(text.error());
  }
  TUTTI_TRY(const auto told, exchange_over(comm, std::as_bytes(std::span(*text))));
  std::vector<Graph> hosts;
  Measured measured;
  for (const SetUp& one : told) {
    if (one.error) return *one.error;
    if (!one.bytes || one.bytes->empty()) continue;
    const std::string said(reinterpret_cast<const char*>(one.bytes->data()), one.bytes->size());
    const std::size_t end = std::min(said.find('\0'), said.size() - 1);
    TUTTI_TRY(hosts.emplace_back(), topology::parse_graph(std::string_view(said).substr(end + 1),
                                                          "what a host measured"));
    measured.said += said.substr(0, end);
  }
  if (of.empty()) {
    measured.graph = std::move(hosts.front());
    return measured;
  }
  const auto other = static_cast<int>(std::find(of.begin(), of.end(), 1) - of.begin());
  TUTTI_TRY(const double hop, network_hop_us(comm, other, nullptr));
  TUTTI_TRY(const NetworkRates rates, network_rates(comm, of));
  TUTTI_TRY(measured.graph, merged(hosts, rates, hop));
  measured.said += network_words(measured.graph, rates, hop);
  return measured;
}

Status write(const Measured& measured, const MeasureOptions& options) {
  say_error("{}", measured.said);
  const std::string text = topology::print(measured.graph);
  TUTTI_RETURN_IF_ERROR(write_text(options.output, text));
  if (text.size() > kMostTopologyBytes)
    say_error("tutti topo measure: {} bytes are more than communicators read ({})\n", text.size(),
              kMostTopologyBytes);
  if (!options.output.empty() && options.output != "-")
    say_error("written to {}; TUTTI_TOPOLOGY={} lets communicators choose by it\n", options.output,
              options.output);
  return ok();
}

Result<int> measure(const MeasureOptions& options) {
  TUTTI_TRY(const auto launch, detect_launch());
  TUTTI_TRY(const Settings settings, Settings::from_environment());
  if (launch.rank.value <= 0) {
    TUTTI_RETURN_IF_ERROR(check_outputs({{"--output", options.output}}));
    const std::string busy = perf::busy_now(std::max(1, launch.local_rank_count));
    if (!busy.empty() && !options.force)
      return Error{
          Code::kSystem,
          fmt::format("this machine is busy: {}; stop the other work (--force goes on)", busy)};
  }
  if (launch.launcher.empty() || launch.rank_count == 1) {
    TUTTI_TRY(const Measured measured, measure_here(options.machine, settings));
    TUTTI_RETURN_IF_ERROR(write(measured, options));
    return 0;
  }
  perf::Options sweep;
  sweep.program = "tutti topo measure";
  const auto body = [&](Communicator& comm) {
    const auto done = [&]() -> Result<int> {
      TUTTI_TRY(const Measured measured, measure_hosts(options.machine, comm));
      if (comm.rank().value == 0) TUTTI_RETURN_IF_ERROR(write(measured, options));
      return 0;
    };
    return exit_code_of(done());
  };
  return perf::run_ranks(sweep, body, [](Settings& adjusted) { adjusted.topology = "off"; });
}

}  // namespace

void define_topo_measure(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<MeasureOptions>();
  const auto command = app.add_subcommand(
      "measure", "Measure what memory, links and networks carry, for plans to be chosen by");
  add_pretended_option(command, options->machine);
  command.add_option("-o,--output", options->output, "File to write; default: stdout")
      .type_name("FILE");
  command.add_flag("--force", options->force, "Measure on a busy machine, too");
  command.footer(
      "The machine as `tutti topo export` writes it, with measured figures in place of assumed "
      "ones.\n"
      "Ranks of a launcher measure their hosts and the network, each host with up to six others;\n"
      "rank 0 writes one file. Programs choose plans by it with TUTTI_TOPOLOGY=FILE.\n"
      "Examples:\n  tutti topo measure -o machine.topo\n"
      "  tutti run --hosts node1,node2,node3,node4 -- tutti topo measure -o cluster.topo\n"
      "  TUTTI_TOPOLOGY=cluster.topo tutti run --hosts node1,node2,node3,node4 -- ./program");
  command.callback([options, &exit_code] { exit_code = exit_code_of(measure(*options)); });
}

}  // namespace tutti::tools
