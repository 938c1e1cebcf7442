// tutti topo embed: the rings that a machine's links allow, and how near they come to the bound.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "topo.h"
#include "topology/embed.h"

namespace tutti::tools {
namespace {

struct EmbedCommand {
  GraphSource source;
  std::vector<std::string> nodes;
  bool json = false;
};

// "gpu0 gpu1 ..": runs of more than most columns are cut in the middle.
std::string order_text(const topology::Graph& graph, const topology::Lane& lane) {
  constexpr std::size_t kMost = 160;
  std::string text;
  for (std::size_t i = 0; i < lane.order.size(); ++i) {
    const std::string name = short_name(graph, lane.order[i]);
    if (text.size() + name.size() > kMost)
      return text + fmt::format(" ... and {} more", lane.order.size() - i);
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

void print_table(const topology::Graph& graph, const topology::Embedding& embedding) {
  constexpr std::size_t kMostLanes = 32;
  const auto& lanes = embedding.lanes;
  fmt::print("{:>4} {:>7}  order\n", "lane", "GB/s");
  for (std::size_t i = 0; i < std::min(lanes.size(), kMostLanes); ++i) {
    fmt::print("{}",
               wrapped(fmt::format("{:>4} {:>7}  {}", i, rate_text(lanes[i].gigabytes_per_second),
                                   order_text(graph, lanes[i])),
                       14));
  }
  if (lanes.size() > kMostLanes) fmt::print("     ... and {} more\n", lanes.size() - kMostLanes);
  fmt::print("\n");
  for (const std::string& line : embedding.report) fmt::print("{}", wrapped(line, 2));
}

void print_json(const topology::Graph& graph, const topology::Embedding& embedding) {
  nlohmann::ordered_json json{{"algbw", embedding.gigabytes_per_second},
                              {"method", embedding.method},
                              {"bound", embedding.bound.gigabytes_per_second()},
                              {"share", embedding.share},
                              {"bound_of_kinds", embedding.bound_of_kinds.gigabytes_per_second()},
                              {"share_of_kinds", embedding.share_of_kinds},
                              {"report", embedding.report}};
  auto& lanes = json["lanes"] = nlohmann::ordered_json::array();
  for (const topology::Lane& lane : embedding.lanes) {
    auto order = nlohmann::ordered_json::array();
    for (const topology::NodeId node : lane.order) order.push_back(graph[node].name);
    lanes.push_back({{"gbps", lane.gigabytes_per_second}, {"order", std::move(order)}});
  }
  fmt::print("{}\n", json.dump(2));
}

int embed(const EmbedCommand& options) {
  const auto machine = load(options.source);
  if (!machine) return complain_topo(machine.error());
  const topology::Graph& graph = machine->graph;
  std::vector<topology::NodeId> ranks;
  for (const std::string& name : options.nodes) {
    const auto node = find_node(graph, name);
    if (!node) return complain_topo(node.error());
    ranks.push_back(*node);
  }
  if (ranks.empty()) ranks = topology::default_endpoints(graph);
  const auto embedding = topology::embed(graph, ranks);
  if (!embedding) return complain_topo(embedding.error());
  options.json ? print_json(graph, *embedding) : print_table(graph, *embedding);
  return 0;
}

}  // namespace

void define_topo_embed(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<EmbedCommand>();
  CLI::App* command =
      app.add_subcommand("embed",
                         "Rings over this machine's links, and how near they come to the "
                         "bound of an all-gather");
  command->add_option("NODES", options->nodes, "Ranks; default: all GPUs, or all NUMA nodes");
  command->add_flag("--json", options->json, "As JSON");
  add_source_options(*command, options->source);
  command->footer(
      "Examples:\n  tutti topo embed --model dgx1-v100\n"
      "  tutti topo embed gpu0 gpu1 gpu2 --from topo.xml");
  command->callback([options, &exit_code] { exit_code = embed(*options); });
}

}  // namespace tutti::tools
