// tutti topo show: a machine in one screen.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tools/topo/topo.h"
#include "topology/bounds/bound.h"
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

constexpr std::size_t kMostShown = 32;  // GPUs, and as many NICs, unless all are asked for.
constexpr std::size_t kNamedVirtual = 4;

std::size_t terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40;
  return known ? size.ws_col : 100;
}

/// One letter for where a number came from, explained below the tables.
char letter(Origin origin) { return "?atxcm"[static_cast<std::size_t>(origin)]; }

/// "gpu2" before "gpu10": numbers in names count as numbers.
bool in_order(std::string_view a, std::string_view b) {
  constexpr std::string_view kDigits = "0123456789";
  while (!a.empty() && !b.empty()) {
    std::size_t skip_a = 1, skip_b = 1;
    if (kDigits.find(a[0]) != kDigits.npos && kDigits.find(b[0]) != kDigits.npos) {
      a.remove_prefix(std::min(a.find_first_not_of('0'), a.size() - 1));
      b.remove_prefix(std::min(b.find_first_not_of('0'), b.size() - 1));
      skip_a = std::min(a.find_first_not_of(kDigits), a.size());
      skip_b = std::min(b.find_first_not_of(kDigits), b.size());
      if (skip_a != skip_b) return skip_a < skip_b;
    }
    if (const int order = a.substr(0, skip_a).compare(b.substr(0, skip_b)); order != 0)
      return order < 0;
    a.remove_prefix(skip_a);
    b.remove_prefix(skip_b);
  }
  return a.size() < b.size();
}

/// The PCI function that a node is, or that a port belongs to; none: it is on no PCI.
NodeId function_of(const Graph& graph, const Adjacency& adjacency, NodeId node) {
  if (!graph[node].bus.empty()) return node;
  for (const Adjacency::Edge& edge : adjacency.from(node)) {
    if (graph.links[edge.link].kind == LinkKind::kPcie) return node;
    if (graph[edge.to].kind == NodeKind::kCard) return edge.to;
  }
  return {};
}

/// What is shown: GPUs, or NUMA nodes where there are none; NICs; and NICs that are not hardware.
struct Shown {
  std::vector<NodeId> rows, nics, virtual_nics;
  std::size_t left_out = 0;
};

Shown choose(const Graph& graph, const Adjacency& adjacency, bool all) {
  Shown shown;
  shown.rows = topology::default_endpoints(graph);
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const bool real = all || function_of(graph, adjacency, nic).exists();
    (real ? shown.nics : shown.virtual_nics).push_back(nic);
  }
  for (auto* nodes : {&shown.rows, &shown.nics, &shown.virtual_nics}) {
    std::sort(nodes->begin(), nodes->end(),
              [&](NodeId a, NodeId b) { return in_order(graph[a].name, graph[b].name); });
    if (all || nodes == &shown.virtual_nics || nodes->size() <= kMostShown) continue;
    shown.left_out += nodes->size() - kMostShown;
    nodes->resize(kMostShown);
  }
  return shown;
}

/// The NUMA node of a node: the nearest way up over PCI or C2C.
NodeId numa_of(const Graph& graph, const Adjacency& adjacency, NodeId node) {
  const topology::PathOptions local{.relays = false, .worst = PathClass::kHost};
  std::vector<NodeId> numas;
  for (const NodeId numa : graph.all(NodeKind::kNuma)) {
    if (graph[numa].host == graph[node].host) numas.push_back(numa);
  }
  const auto paths = topology::best_paths(graph, adjacency, node, numas, local);
  const Path* best = nullptr;
  for (const Path& path : paths) {
    if (path.type == PathClass::kNone) continue;
    if (best == nullptr || path.edges.size() < best->edges.size()) best = &path;
  }
  return best == nullptr ? NodeId{} : best->to;
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

void print_inventory(const Graph& graph, const Adjacency& adjacency, const Shown& shown) {
  std::vector<NodeId> nodes = shown.rows;
  nodes.insert(nodes.end(), shown.nics.begin(), shown.nics.end());
  const std::size_t width = name_width(graph, nodes);
  say("{:<{}}  {:<12}  {:<4}  {}\n", "name", width, "bus", "numa", "links, GB/s each way");
  for (const NodeId node : nodes) {
    const NodeId numa =
        graph[node].kind == NodeKind::kNuma ? NodeId{} : numa_of(graph, adjacency, node);
    // A port has the address and the PCI link of its card.
    const NodeId function = function_of(graph, adjacency, node);
    std::string links = links_of(graph, adjacency, node);
    if (function.exists() && function != node)
      topology::append(links, links_of(graph, adjacency, function));
    const bool on_pci = function.exists() && !graph[function].bus.empty();
    const std::string state = fact(graph[node], "state");
    say("{:<{}}  {:<12}  {:<4}  {}{}\n", short_name(graph, node), width,
        on_pci ? graph[function].bus : "-",
        numa.exists() && graph[numa].index >= 0 ? std::to_string(graph[numa].index) : "-", links,
        state.empty() || state == "ACTIVE" ? "" : "  [" + state + "]");
  }
  if (shown.virtual_nics.empty()) return;
  const auto first =
      std::span(shown.virtual_nics).first(std::min(kNamedVirtual, shown.virtual_nics.size()));
  say("{}", wrapped(fmt::format("and {} on no PCI: {}{} (--all shows them)",
                                counted(static_cast<int>(shown.virtual_nics.size()), "interface"),
                                topology::list_of(
                                    first, [&](NodeId nic) { return short_name(graph, nic); }),
                                first.size() < shown.virtual_nics.size() ? ", ..." : ""),
                    2));
}

/// NVLinks or xGMI links side by side from one GPU to another.
int links_between(const Graph& graph, const Adjacency& adjacency, const Path& path) {
  int between = 0, out = 0, in = 0;
  const auto fast = [&](const Adjacency::Edge& edge) {
    return topology::is_fast(graph.links[edge.link].kind);
  };
  for (const Adjacency::Edge& edge : adjacency.from(path.to))
    in += fast(edge) ? graph.links[edge.link].count : 0;
  for (const Adjacency::Edge& edge : adjacency.from(path.from)) {
    if (!fast(edge)) continue;
    const int count = graph.links[edge.link].count;
    out += count;
    if (edge.to == path.to) between += count;
    if (graph[edge.to].kind != NodeKind::kNvSwitch) continue;
    for (const Adjacency::Edge& next : adjacency.from(edge.to)) {
      if (next.to == path.to) between += std::min(count, graph.links[next.link].count);
    }
  }
  return between > 0 ? between : std::min(out, in);  // Over several switches: all that they have.
}

/// "NV18", "NODE", "PIX": as nvidia-smi writes it.
std::string class_of(const Graph& graph, const Adjacency& adjacency, const Path& path) {
  if (path.type != PathClass::kNvlink) return std::string(name_of(graph, path));
  const bool nvlink = graph.links[path.edges[0].link].kind == LinkKind::kNvlink;
  const int count = links_between(graph, adjacency, path);
  return nvlink ? fmt::format("NV{}", count) : count > 1 ? fmt::format("XGMI{}", count) : "XGMI";
}

std::string cell(const Graph& graph, const Adjacency& adjacency, const Path& path) {
  if (path.type == PathClass::kLocal) return "X";
  if (path.type == PathClass::kNone) return "-";
  const Adjacency::Edge& narrowest = path.edges[path.bottleneck];
  const auto& limit = bandwidth(graph, narrowest);
  std::string type = class_of(graph, adjacency, path);
  if (graph.links[narrowest.link].kind == LinkKind::kInternal) return type;  // It limits nobody.
  const double rate = path.gigabytes_per_second;
  return fmt::format("{} {}{}", type, rate >= 100 ? fmt::format("{:.0f}", rate) : rate_text(rate),
                     limit.known() ? std::string(1, letter(limit.origin)) : "");
}

void print_legend(const std::set<PathClass>& seen, bool node) {
  say("\nclass, and GB/s of the narrowest link with its source: m measured, c current, x "
      "maximum,\nt table, a assumed\n");
  const auto say_node = [&] {
    if (std::exchange(node, false))
      say("  NODE  through a CPU, from one of its PCI roots to another\n");
  };
  for (const PathClass type : seen) {
    if (type == PathClass::kLocal || type == PathClass::kNone) continue;
    if (type > PathClass::kHost) say_node();
    const std::string name = type == PathClass::kNvlink ? "NV#, XGMI#" : std::string(name_of(type));
    say("  {}  {}{}\n", name, meaning_of(type),
        type == PathClass::kNvlink ? ", so many links" : "");
  }
  say_node();
}

void print_matrix(const Graph& graph, const Adjacency& adjacency, const Shown& shown) {
  std::vector<NodeId> columns = shown.rows;
  columns.insert(columns.end(), shown.nics.begin(), shown.nics.end());
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  std::set<PathClass> seen;
  bool node = false;
  for (const NodeId column : columns) widths.push_back(short_name(graph, column).size());
  for (const NodeId row : shown.rows) {
    auto& line = cells.emplace_back();
    for (const Path& path :
         topology::best_paths(graph, adjacency, row, columns, {.relays = false})) {
      line.push_back(cell(graph, adjacency, path));
      const bool is_node = line.back().starts_with("NODE");
      node = node || is_node;
      if (!is_node) seen.insert(path.type);
      auto& width = widths[line.size() - 1];
      width = std::max(width, line.back().size());
    }
  }
  const std::size_t name = name_width(graph, shown.rows), room = terminal_columns();
  for (std::size_t first = 0, last = 0; first < columns.size(); first = last) {
    std::size_t used = name;
    while (last < columns.size() && (last == first || used + 1 + widths[last] <= room))
      used += 1 + widths[last++];
    say("\n{:<{}}", "", name);
    for (std::size_t i = first; i < last; ++i)
      say(" {:>{}}", short_name(graph, columns[i]), widths[i]);
    say("\n");
    for (std::size_t row = 0; row < cells.size(); ++row) {
      say("{:<{}}", short_name(graph, shown.rows[row]), name);
      for (std::size_t i = first; i < last; ++i) say(" {:>{}}", cells[row][i], widths[i]);
      say("\n");
    }
  }
  print_legend(seen, node);
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

void print_machine(const topology::Imported& machine, bool all) {
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
  const Shown shown = choose(graph, adjacency, all);
  if (!shown.rows.empty()) {
    say("\n");
    print_inventory(graph, adjacency, shown);
    print_matrix(graph, adjacency, shown);
  }
  if (shown.left_out > 0)
    say("({} more not shown; --all shows them, `tutti topo export` writes them)\n", shown.left_out);
  print_findings(machine.findings);
}

struct Show {
  GraphSource source;
  std::string svg;
  bool json = false, dot = false, all = false;
};

/// What a picture is called: the model, or the file without its folders.
std::string title_of(const GraphSource& source) {
  if (!source.model.empty()) return source.model;
  if (source.from.empty() || source.from == "-") return {};
  return source.from.substr(source.from.rfind('/') + 1);
}

Result<int> show(const Show& options) {
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--svg", options.svg}}));
  TUTTI_TRY(const auto machine, load(options.source));
  if (!options.svg.empty()) {
    TUTTI_RETURN_IF_ERROR(
        write_text(options.svg, topology::to_svg(machine.graph, title_of(options.source))));
  }
  if (options.json)
    say("{}\n", topology::to_json(machine.graph));
  else if (options.dot)
    say("{}", topology::to_dot(machine.graph));
  else
    print_machine(machine, options.all);
  return 0;
}

}  // namespace

void define_topo_show(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Show>();
  const auto command =
      app.add_subcommand("show", "GPUs, NICs, NUMA nodes, and how they are joined");
  add_source_options(command, options->source);
  command.add_option("--svg", options->svg, "Write a picture").type_name("FILE");
  const auto json = command.add_flag("--json", options->json, "The whole graph as JSON");
  command.add_flag("--dot", options->dot, "The whole graph for Graphviz").excludes(json);
  command.add_flag("--all", options->all,
                   "Also interfaces on no PCI, and all GPUs and NICs of a large machine");
  command.footer(
      "Examples:\n  tutti topo show\n  tutti topo show --from /tmp/topo.xml\n"
      "  tutti topo show --model gb200-nvl72 --svg rack.svg");
  command.callback([options, &exit_code] { exit_code = exit_code_of(show(*options)); });
}

}  // namespace tutti::tools
