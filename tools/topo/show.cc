// tutti topo show: a machine in one screen.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/topo/topo.h"
#include "topology/graph/paths.h"
#include "topology/graph/words.h"
#include "topology/render/render.h"

namespace tutti::tools {
namespace {

using topology::Adjacency;
using topology::Graph;
using topology::LinkKind;
using topology::NodeId;
using topology::NodeKind;
using topology::Origin;
using topology::Path;
using topology::PathClass;

constexpr std::size_t kColumns = 8;  // In the matrix, so that lines fit 100 columns.
constexpr std::size_t kMostEndpoints = 64;

/// One letter for where a number came from, explained below the tables.
char letter(Origin origin) { return "?atxcm"[static_cast<std::size_t>(origin)]; }

/// The NUMA node of a node: the nearest way up over PCI or C2C.
NodeId numa_of(const Graph& graph, const Adjacency& adjacency, NodeId node) {
  const topology::PathOptions local{.relays = false, .worst = PathClass::kHost};
  NodeId best;
  std::size_t fewest = 0;
  for (const NodeId numa : graph.all(NodeKind::kNuma)) {
    if (graph[numa].host != graph[node].host) continue;
    const Path path = topology::best_path(graph, adjacency, node, numa, local);
    if (path.type == PathClass::kNone || (best.exists() && path.edges.size() >= fewest)) continue;
    best = numa;
    fewest = path.edges.size();
  }
  return best;
}

/// "nvlink 370.8t, pcie 48.0x (32 GT/s x16)": what leaves a node, by kind, several links added up.
std::string links_of(const Graph& graph, const Adjacency& adjacency, NodeId node) {
  struct Sum {
    double rate = 0;
    int count = 0;
    Origin origin = Origin::kMeasured;
    std::string note;
  };
  std::map<LinkKind, Sum> sums;
  for (const Adjacency::Edge& edge : adjacency.from(node)) {
    const topology::Link& link = graph.links[edge.link];
    Sum& sum = sums[link.kind];
    sum.rate += bandwidth(graph, edge).value;
    sum.count += link.count;
    sum.origin = std::min(sum.origin, bandwidth(graph, edge).origin);
    if (!link.pcie) continue;
    const auto& maximum = link.pcie->maximum;
    const auto& current = link.pcie->current;
    if (maximum.known())
      sum.note = fmt::format(" ({:g} GT/s x{})", maximum.gigatransfers, maximum.width);
    if (current.known() && !(current == maximum))
      sum.note = fmt::format(" (now {:g} GT/s x{} of {:g} x{})", current.gigatransfers,
                             current.width, maximum.gigatransfers, maximum.width);
  }
  std::string text;
  for (const auto& [kind, sum] : sums) {
    if (kind == LinkKind::kInternal) continue;
    const std::string count = sum.count > 1 ? fmt::format(" x{}", sum.count) : "";
    topology::append(text, fmt::format("{}{} {}{}{}", to_string(kind), count, rate_text(sum.rate),
                                       letter(sum.origin), sum.note));
  }
  return text;
}

std::size_t name_width(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::size_t width = 4;
  for (const NodeId node : nodes) width = std::max(width, short_name(graph, node).size());
  return width;
}

void print_inventory(const Graph& graph, const Adjacency& adjacency,
                     const std::vector<NodeId>& nodes) {
  const std::size_t width = name_width(graph, nodes);
  say("{:<{}}  {:<12}  {:<4}  {}\n", "name", width, "bus", "numa", "links, GB/s each way");
  for (const NodeId node : nodes) {
    const NodeId numa =
        graph[node].kind == NodeKind::kNuma ? NodeId{} : numa_of(graph, adjacency, node);
    const std::string state = fact(graph[node], "state");
    say("{:<{}}  {:<12}  {:<4}  {}{}\n", short_name(graph, node), width,
        graph[node].bus.empty() ? "-" : graph[node].bus,
        numa.exists() ? std::to_string(graph[numa].index) : "-", links_of(graph, adjacency, node),
        state.empty() || state == "ACTIVE" ? "" : "  [" + state + "]");
  }
}

std::string cell(const Graph& graph, const Path& path) {
  if (path.type == PathClass::kLocal) return "X";
  if (path.type == PathClass::kNone) return "-";
  const auto& limit = bandwidth(graph, path.edges[path.bottleneck]);
  return fmt::format("{} {}{}", name_of(path.type), rate_text(path.gigabytes_per_second),
                     limit.known() ? std::string(1, letter(limit.origin)) : "");
}

void print_matrix(const Graph& graph, const Adjacency& adjacency,
                  const std::vector<NodeId>& nodes) {
  const std::size_t width = name_width(graph, nodes);
  const std::size_t columns = std::max<std::size_t>(1, std::min(kColumns, (98 - width) / 11));
  for (std::size_t first = 0; first < nodes.size(); first += columns) {
    const std::size_t last = std::min(first + columns, nodes.size());
    say("\n{:<{}}", "", width);
    for (std::size_t i = first; i < last; ++i)
      say(" {:>10}", short_name(graph, nodes[i]).substr(0, 10));
    say("\n");
    for (const NodeId row : nodes) {
      say("{:<{}}", short_name(graph, row), width);
      for (std::size_t i = first; i < last; ++i) {
        const Path path = topology::best_path(graph, adjacency, row, nodes[i], {.relays = false});
        say(" {:>10}", cell(graph, path));
      }
      say("\n");
    }
  }
}

void print_findings(const topology::Findings& findings) {
  if (findings.empty()) return;
  say("\n");
  for (const topology::Finding& finding : findings) {
    say("{}", wrapped(fmt::format("{}: {}{}{}", to_string(finding.severity), finding.where,
                                  finding.where.empty() ? "" : ": ", finding.what),
                      2));
    if (!finding.remedy.empty()) say("{}", wrapped("  " + finding.remedy, 4));
  }
}

std::string count_text(const Graph& graph, NodeKind kind, const char* one, const char* many) {
  const std::size_t count = graph.all(kind).size();
  return count == 0 ? "" : fmt::format(", {} {}", count, count == 1 ? one : many);
}

void print_machine(const topology::Imported& machine) {
  const Graph& graph = machine.graph;
  const Adjacency adjacency(graph);
  const std::size_t hosts = graph.all(NodeKind::kHost).size();
  say("{} host{}{}{}{}{}{}{}\n", hosts, hosts == 1 ? "" : "s",
      count_text(graph, NodeKind::kPackage, "CPU package", "CPU packages"),
      count_text(graph, NodeKind::kNuma, "NUMA node", "NUMA nodes"),
      count_text(graph, NodeKind::kGpu, "GPU", "GPUs"),
      count_text(graph, NodeKind::kNvSwitch, "NVSwitch", "NVSwitches"),
      count_text(graph, NodeKind::kNic, "NIC port", "NIC ports"),
      count_text(graph, NodeKind::kNetworkSwitch, "network switch", "network switches"));
  for (const std::string& note : graph.notes) say("{}", wrapped(note, 2));
  std::vector<NodeId> nodes = endpoints(graph);
  const std::size_t all = nodes.size();
  if (all > kMostEndpoints) nodes.resize(kMostEndpoints);
  if (!nodes.empty()) {
    say("\n");
    print_inventory(graph, adjacency, nodes);
    print_matrix(graph, adjacency, nodes);
    say("\nclass, and GB/s of the narrowest link with its source: m measured, c current, x "
        "maximum,\n"
        "t table, a assumed\n");
    std::vector<bool> seen(16);
    for (const NodeId a : nodes) {
      for (const NodeId b : nodes)
        seen[static_cast<std::size_t>(
            topology::best_path(graph, adjacency, a, b, {.relays = false}).type)] = true;
    }
    for (std::size_t type = 1; type + 1 < 12; ++type) {
      const auto known = static_cast<PathClass>(type);
      if (seen[type]) say("  {}  {}\n", name_of(known), meaning_of(known));
    }
  }
  if (all > nodes.size()) say("({} of {} shown; `tutti topo export` has all)\n", nodes.size(), all);
  print_findings(machine.findings);
}

struct Show {
  GraphSource source;
  std::string svg;
  bool json = false, dot = false;
};

Result<int> show(const Show& options) {
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--svg", options.svg}}));
  TUTTI_TRY(const auto machine, load(options.source));
  if (!options.svg.empty()) {
    TUTTI_RETURN_IF_ERROR(write_text(options.svg, topology::to_svg(machine.graph)));
  }
  if (options.json)
    say("{}\n", topology::to_json(machine.graph));
  else if (options.dot)
    say("{}", topology::to_dot(machine.graph));
  else
    print_machine(machine);
  return 0;
}

}  // namespace

void define_topo_show(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Show>();
  CLI::App* command = app.add_subcommand("show", "GPUs, NICs, NUMA nodes, and how they are joined");
  add_source_options(*command, options->source);
  command->add_option("--svg", options->svg, "Write a picture");
  auto* json = command->add_flag("--json", options->json, "The whole graph as JSON");
  command->add_flag("--dot", options->dot, "The whole graph for Graphviz")->excludes(json);
  command->footer(
      "Examples:\n  tutti topo show\n  tutti topo show --from /tmp/topo.xml\n"
      "  tutti topo show --model gb200-nvl72 --svg rack.svg");
  command->callback([options, &exit_code] { exit_code = exit_code_of(show(*options)); });
}

}  // namespace tutti::tools
