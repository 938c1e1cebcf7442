// tutti topo bound: what no algorithm can beat on a machine, and which links say so.
#include <fmt/format.h>

#include <array>

#include "base/json.h"
#include "tools/topo/topo.h"
#include "topology/bounds/bound.h"
#include "topology/graph/words.h"

namespace tutti::tools {
namespace {

struct BoundOptions {
  GraphSource source;
  std::vector<std::string> nodes;
  bool json = false;
};

struct Row {
  const char* name;
  topology::Pattern collective;
  double bus_factor(double n) const {
    switch (collective) {
      case topology::Pattern::kAllReduce: return 2 * (n - 1) / n;
      case topology::Pattern::kBroadcast:
      case topology::Pattern::kReduce:
      case topology::Pattern::kScan: return 1;
      default: return (n - 1) / n;
    }
  }
};
constexpr std::array kRows{Row{"all_gather", topology::Pattern::kAllGather},
                           Row{"reduce_scatter", topology::Pattern::kReduceScatter},
                           Row{"all_reduce", topology::Pattern::kAllReduce},
                           Row{"broadcast", topology::Pattern::kBroadcast},
                           Row{"reduce", topology::Pattern::kReduce},
                           Row{"gather", topology::Pattern::kGather},
                           Row{"scatter", topology::Pattern::kScatter},
                           Row{"scan", topology::Pattern::kScan},
                           Row{"all_to_all", topology::Pattern::kAllToAll}};

/// Roots are the first rank.
Result<topology::Bound> bound_of(const topology::Graph& graph, const Row& row,
                                 const std::vector<topology::NodeId>& ranks) {
  return topology::bound(graph, row.collective, ranks, {.root = 0, .last = ranks.size() - 1});
}

/// What NVLink or xGMI alone would allow ranks that it joins: "all_gather 370.8, ..."; "" for
/// others. The bound counts the PCI Express links beside it, which hardly any program uses at once.
std::string fast_alone(const topology::Graph& graph, const std::vector<topology::NodeId>& ranks) {
  topology::Graph fast = graph;
  std::erase_if(fast.links, [](const topology::Link& link) { return !is_fast(link.kind); });
  std::string text;
  for (const Row& row : kRows) {
    const auto found = bound_of(fast, row, ranks);
    if (!found) return {};
    const double bus =
        found->gigabytes_per_second() * row.bus_factor(static_cast<double>(ranks.size()));
    topology::append(text, fmt::format("{} {}", row.name, rate_text(bus)));
  }
  return text;
}

Result<int> bound(const BoundOptions& options) {
  TUTTI_TRY(const auto machine, load(options.source));
  const topology::Graph& graph = machine.graph;
  TUTTI_TRY(const auto ranks, find_ranks(graph, options.nodes));
  auto json = Json::array();
  std::string text =
      fmt::format("{} ranks on {}; GB/s at most, for large messages\n\n", ranks.size(),
                  graph.all(topology::NodeKind::kGpu).empty() ? "NUMA nodes" : "GPUs");
  text +=
      fmt::format("{:<15} {:>8} {:>8}         {}\n", "collective", "algbw", "busbw", "bottleneck");
  topology::Findings unknown;
  for (const Row& row : kRows) {
    TUTTI_TRY(const auto found, bound_of(graph, row, ranks));
    const double algbw = found.gigabytes_per_second();
    const double busbw = algbw * row.bus_factor(static_cast<double>(ranks.size()));
    json.push_back({{"collective", row.name},
                    {"algbw", algbw},
                    {"busbw", busbw},
                    {"exact", found.exact},
                    {"cut", found.cut.words}});
    text += wrapped(fmt::format("{:<15} {:>8.1f} {:>8.1f}  {:<5}  {}", row.name, algbw, busbw,
                                found.exact ? "exact" : "", found.cut.words),
                    42);
    unknown = found.findings;
  }
  if (const std::string alone = fast_alone(graph, ranks); !alone.empty())
    text += "\n" + wrapped("busbw over links between GPUs alone: " + alone, 2);
  text +=
      "\nexact: packed trees or paths reach it. Without the word it holds, but may not be "
      "reached.\n";
  for (const topology::Finding& finding : unknown)
    text += wrapped(fmt::format("{}: {}", finding.what, finding.remedy), 2);
  say("{}", options.json ? json.text({.indent = 2}) + "\n" : text);
  return 0;
}

}  // namespace

void define_topo_bound(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<BoundOptions>();
  const auto command =
      app.add_subcommand("bound", "What no algorithm can beat here, and the cut that says so");
  command.add_option("NODES", options->nodes, "Ranks; default: all GPUs, or all NUMA nodes");
  command.add_flag("--json", options->json, "As JSON");
  add_source_options(command, options->source);
  command.footer(
      "Examples:\n  tutti topo bound --model hgx-h100:2\n"
      "  tutti topo bound gpu0 gpu1 gpu2 --from topo.xml");
  command.callback([options, &exit_code] { exit_code = exit_code_of(bound(*options)); });
}

}  // namespace tutti::tools
