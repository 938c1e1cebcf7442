// tutti topo why A B: the best path between two nodes, its bottleneck, and what a fix would gain.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tools/topo/topo.h"
#include "topology/checks/direct.h"
#include "topology/graph/paths.h"

namespace tutti::tools {
namespace {

using topology::Adjacency;
using topology::Graph;
using topology::Path;
using topology::PathClass;

std::string link_text(const Graph& graph, const Adjacency::Edge& edge) {
  const topology::Link& link = graph.links[edge.link];
  std::string text(to_string(link.kind));
  if (link.count > 1) text += fmt::format(" x{}", link.count);
  if (!link.pcie) return text;
  const auto rate = [](const topology::PcieRate& r) {
    return r.known() ? fmt::format("{:g} GT/s x{}", r.gigatransfers, r.width) : std::string("?");
  };
  if (link.pcie->maximum.known()) text += " " + rate(link.pcie->maximum);
  if (link.pcie->current.known() && !(link.pcie->current == link.pcie->maximum))
    text += ", now " + rate(link.pcie->current);
  return text;
}

void print_path(const Graph& graph, const Path& path) {
  say("{} ({}), {} GB/s", name_of(graph, path), meaning_of(graph, path),
      rate_text(path.gigabytes_per_second));
  if (path.ways > 1) say(" over {} ways like this", path.ways);
  if (path.latency_us > 0) say(", {:.2f} us", path.latency_us);
  say("\n\n  {}\n", short_name(graph, path.from));
  for (std::size_t i = 0; i < path.edges.size(); ++i) {
    const auto& rate = bandwidth(graph, path.edges[i]);
    say("    {:<36} {:>8} GB/s  {}{}\n", link_text(graph, path.edges[i]), rate_text(rate.value),
        to_string(rate.origin), i == path.bottleneck ? "   <- the bottleneck" : "");
    say("  {}\n", short_name(graph, path.edges[i].to));
  }
}

void print_gain(const Graph& graph, const Path& path) {
  double next = std::numeric_limits<double>::infinity();
  int narrowest = 0;
  for (const Adjacency::Edge& edge : path.edges) {
    const double rate = bandwidth(graph, edge).value;
    if (rate > path.gigabytes_per_second)
      next = std::min(next, rate);
    else
      ++narrowest;
  }
  const topology::Link& limit = graph.links[path.edges[path.bottleneck].link];
  if (path.ways > 1) return;
  if (narrowest == 1 && next < std::numeric_limits<double>::infinity() &&
      path.gigabytes_per_second > 0) {
    say("\nWere {} between {} and {} wider, the path would reach {} GB/s (+{:.0f} %).\n",
        to_string(limit.kind), short_name(graph, limit.a), short_name(graph, limit.b),
        rate_text(next), (next / path.gigabytes_per_second - 1) * 100);
  } else if (path.edges.size() > 1) {
    say("\n{} links of it are equally narrow: no single fix makes it faster.\n", narrowest);
  }
  for (const Adjacency::Edge& edge : path.edges) {
    const topology::Link& link = graph.links[edge.link];
    if (!link.pcie || !link.pcie->current.known() || !link.pcie->maximum.known()) continue;
    const double now = topology::pcie_bandwidth(link.pcie->current);
    const double most = topology::pcie_bandwidth(link.pcie->maximum);
    if (now < most)
      say("{}", wrapped(fmt::format("PCIe between {} and {} runs at {} of {} GB/s now; asleep "
                                    "if nothing runs, else degraded.",
                                    short_name(graph, link.a), short_name(graph, link.b),
                                    rate_text(now), rate_text(most)),
                        2));
  }
}

std::string leg(const Graph& graph, const Path& path) {
  return fmt::format("{} -> {} ({}, {} GB/s)", short_name(graph, path.from),
                     short_name(graph, path.to), name_of(graph, path),
                     rate_text(path.gigabytes_per_second));
}

/// How drivers, kernel and bridges change the path.
void print_direct(const Graph& graph, const Path& path) {
  using Verdict = topology::Direct::Verdict;
  const topology::Direct direct = topology::direct_access(graph, path.from, path.to);
  switch (direct.verdict) {
    case Verdict::kAllowed: break;
    case Verdict::kDepends: say("\n{}", wrapped("Not sure: " + direct.why, 2)); break;
    case Verdict::kDetour:
      say("\n{}", wrapped("Detour: " + direct.why + "; data goes up to the processor and back", 2));
      break;
    case Verdict::kRefused:
      say("\n{}", wrapped("Refused: " + direct.why, 2));
      if (direct.staged.size() != 2) break;
      say("  data goes through host memory: {},\n  then {}; at most {} GB/s\n",
          leg(graph, direct.staged[0]), leg(graph, direct.staged[1]),
          rate_text(std::min(direct.staged[0].gigabytes_per_second,
                             direct.staged[1].gigabytes_per_second)));
      break;
  }
  const auto is = [&](topology::NodeKind kind) {
    return graph[path.from].kind == kind || graph[path.to].kind == kind;
  };
  if (direct.verdict != Verdict::kRefused && is(topology::NodeKind::kGpu) &&
      is(topology::NodeKind::kNic) &&
      (path.type == PathClass::kHost || path.type == PathClass::kSystem)) {
    say("\nNCCL does not use GPUDirect over {} unless NCCL_NET_GDR_LEVEL says so: it goes\n"
        "through host memory.\n",
        name_of(graph, path));
  }
}

struct Why {
  GraphSource source;
  std::string from, to;
};

Result<int> why(const Why& options) {
  TUTTI_TRY(const auto machine, load(options.source));
  const Graph& graph = machine.graph;
  TUTTI_TRY(const auto from, find_node(graph, options.from));
  TUTTI_TRY(const auto to, find_node(graph, options.to));
  const Adjacency adjacency(graph);
  const Path path = topology::best_path(graph, adjacency, from, to);
  if (path.edges.empty()) {
    say("{} ({})\n", name_of(path.type), meaning_of(path.type));
    return path.type == PathClass::kNone ? 1 : 0;
  }
  print_path(graph, path);
  const Path plain = topology::best_path(graph, adjacency, from, to, {.relays = false});
  if (plain.type != path.type && !plain.edges.empty()) {
    say("\nWithout the GPU between: {}, {} GB/s.\n", name_of(graph, plain),
        rate_text(plain.gigabytes_per_second));
  }
  print_direct(graph, path);
  print_gain(graph, path);
  return 0;
}

}  // namespace

void define_topo_why(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Why>();
  const auto command = app.add_subcommand("why", "The best path between two nodes, link by link");
  command.add_option("A", options->from, "A node: gpu0, mlx5_1, numa0, 0000:17:00.0").required();
  command.add_option("B", options->to, "Another").required();
  add_source_options(command, options->source);
  command.footer(
      "Examples:\n  tutti topo why gpu0 gpu5 --model dgx1-v100\n"
      "  tutti topo why gpu0 mlx5_4 --from topo.xml");
  command.callback([options, &exit_code] { exit_code = exit_code_of(why(*options)); });
}

}  // namespace tutti::tools
