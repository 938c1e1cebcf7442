// tutti topo embed: the rings or trees that a machine's links allow, and how near they come to the
// bound.
#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "tools/topo/topo.h"
#include "topology/embedding/embed.h"

namespace tutti::tools {
namespace {

struct EmbedCommand {
  GraphSource source;
  std::vector<std::string> nodes;
  bool json = false;
};

constexpr std::size_t kMostText = 160;

// "gpu0 gpu1 ..": runs of more than most columns are cut in the middle.
std::string order_text(const topology::Graph& graph, const topology::Lane& lane) {
  std::string text;
  for (std::size_t i = 0; i < lane.order.size(); ++i) {
    const std::string name = short_name(graph, lane.order[i]);
    if (text.size() + name.size() > kMostText)
      return text + fmt::format(" ... and {} more", lane.order.size() - i);
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

// The first endpoint's tree: "gpu0 > gpu1 gpu2, gpu1 > gpu3", nearest first.
std::string tree_text(const topology::Graph& graph, const topology::Lane& lane) {
  std::vector<std::vector<std::size_t>> children(lane.order.size());
  for (std::size_t place = 1; place < lane.order.size(); ++place)
    children[lane.source(0, place).from].push_back(place);
  std::string text;
  std::vector<std::size_t> queue{0};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    if (children[queue[i]].empty()) continue;
    std::string part = (text.empty() ? "" : ", ") + short_name(graph, lane.order[queue[i]]) + " >";
    for (const std::size_t child : children[queue[i]])
      part += " " + short_name(graph, lane.order[child]);
    queue.insert(queue.end(), children[queue[i]].begin(), children[queue[i]].end());
    if (!text.empty() && text.size() + part.size() > kMostText) return text + " ...";
    if (part.size() > kMostText) return part.substr(0, part.rfind(' ', kMostText)) + " ...";
    text += part;
  }
  return text;
}

void print_table(const topology::Graph& graph, const topology::Embedding& embedding) {
  constexpr std::size_t kMostLanes = 32;
  const auto& lanes = embedding.lanes;
  const bool rings = std::all_of(lanes.begin(), lanes.end(),
                                 [](const topology::Lane& lane) { return lane.is_ring(); });
  say("{:>4} {:>7} {:>5}  {}\n", "lane", "GB/s", "depth", rings ? "order" : "tree of the first");
  for (std::size_t i = 0; i < std::min(lanes.size(), kMostLanes); ++i) {
    const std::string text =
        lanes[i].is_ring() ? order_text(graph, lanes[i]) : tree_text(graph, lanes[i]);
    say("{}", wrapped(fmt::format("{:>4} {:>7} {:>5}  {}", i,
                                  rate_text(lanes[i].gigabytes_per_second), lanes[i].depth(), text),
                      20));
  }
  if (lanes.size() > kMostLanes) say("     ... and {} more\n", lanes.size() - kMostLanes);
  say("\n");
  for (const std::string& line : embedding.report) say("{}", wrapped(line, 2));
}

// By root, by endpoint: the place in the order from which it gets the root's block; the root: -1.
Json parents_json(const topology::Lane& lane) {
  auto roots = Json::array();
  for (std::size_t root = 0; root < lane.order.size(); ++root) {
    auto parents = Json::array();
    for (std::size_t place = 0; place < lane.order.size(); ++place)
      parents.push_back(place == root ? -1 : static_cast<int>(lane.source(root, place).from));
    roots.push_back(std::move(parents));
  }
  return roots;
}

void print_json(const topology::Graph& graph, const topology::Embedding& embedding) {
  Json json{{"algbw", embedding.gigabytes_per_second},
            {"method", embedding.method},
            {"bound", embedding.bound.gigabytes_per_second()},
            {"share", embedding.share},
            {"bound_of_kinds", embedding.bound_of_kinds.gigabytes_per_second()},
            {"share_of_kinds", embedding.share_of_kinds},
            {"rings", embedding.rings},
            {"report", embedding.report}};
  auto& lanes = json["lanes"] = Json::array();
  for (const topology::Lane& lane : embedding.lanes) {
    auto order = Json::array();
    for (const topology::NodeId node : lane.order) order.push_back(graph[node].name);
    Json entry{{"kind", lane.is_ring() ? "ring" : "trees"},
               {"gbps", lane.gigabytes_per_second},
               {"depth", lane.depth()},
               {"order", std::move(order)}};
    if (!lane.is_ring()) entry["parents"] = parents_json(lane);
    lanes.push_back(std::move(entry));
  }
  say("{}\n", json.text({.indent = 2}));
}

Result<int> embed(const EmbedCommand& options) {
  TUTTI_TRY(const auto machine, load(options.source));
  const topology::Graph& graph = machine.graph;
  TUTTI_TRY(const auto ranks, find_ranks(graph, options.nodes));
  TUTTI_TRY(const auto embedding, topology::embed(graph, ranks));
  options.json ? print_json(graph, embedding) : print_table(graph, embedding);
  return 0;
}

}  // namespace

void define_topo_embed(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<EmbedCommand>();
  const auto command =
      app.add_subcommand("embed",
                         "Rings or trees over this machine's links, and how near they come to the "
                         "bound of an all-gather");
  command.add_option("NODES", options->nodes, "Ranks; default: all GPUs, or all NUMA nodes");
  command.add_flag("--json", options->json, "As JSON");
  add_source_options(command, options->source);
  command.footer(
      "Examples:\n  tutti topo embed --model dgx1-v100\n"
      "  tutti topo embed --model gb200-nvl72:2 --json\n"
      "  tutti topo embed gpu0 gpu1 gpu2 --from topo.xml");
  command.callback([options, &exit_code] { exit_code = exit_code_of(embed(*options)); });
}

}  // namespace tutti::tools
