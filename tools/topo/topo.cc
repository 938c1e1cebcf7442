// tutti topo: machines as graphs: seen, explained, checked, carried elsewhere.
#include "tools/topo/topo.h"

#include <fmt/format.h>

#include "perf/command_line/command_line.h"
#include "perf/sweep/options.h"
#include "tools/words.h"
#include "topology/bounds/bound.h"
#include "topology/capture/machines.h"
#include "topology/graph/words.h"
#include "topology/models/model.h"
#include "topology/probe/probe.h"

namespace tutti::tools {

using topology::Graph;
using topology::NodeId;
using topology::NodeKind;

void add_pretended_option(const perf::Command& app, GraphSource& source) {
  app.add_option("--pretended", source.pretended).envname("SIMT_MACHINE").group("");
}

void add_source_options(const perf::Command& app, GraphSource& source) {
  const auto from =
      app.add_option("--from", source.from,
                     "A file: text form, NCCL or hwloc XML, nvidia-smi topo -m, amd-smi, rocm-smi, "
                     "or a capture; FILE:4: its hosts four times; -: standard input; "
                     "default: this machine")
          .type_name("FILE");
  perf::offer(
      app.add_option("--model", source.model, "A modelled system: hgx-h100, dgx1-v100:4, ...")
          .excludes(from),
      model_words());
  add_pretended_option(app, source);
}

Result<topology::Imported> load(const GraphSource& source) {
  if (!source.model.empty()) {
    TUTTI_TRY(auto graph, topology::model(source.model));
    return topology::Imported{std::move(graph), {}};
  }
  if (source.from.empty()) {
    return source.pretended.empty() ? topology::probe_machine()
                                    : topology::load_machine(source.pretended);
  }
  return topology::load_machine_file(source.from);
}

int exit_code_of(const Result<int>& done, std::string_view command) {
  if (done) return *done;
  say_error("tutti {}: {}\n", command, done.error().what);
  return done.error().code == Code::kInvalidArgument ? kUsage : 1;
}

std::vector<NodeId> endpoints(const Graph& graph) {
  std::vector<NodeId> nodes = topology::default_endpoints(graph);
  const auto nics = graph.all(NodeKind::kNic);
  nodes.insert(nodes.end(), nics.begin(), nics.end());
  return nodes;
}

Result<NodeId> find_node(const Graph& graph, const std::string& name) {
  NodeId found = graph.find(name);
  if (!found.exists()) found = graph.find("host0/" + name);
  if (found.exists()) return found;
  for (const NodeId node : graph.all()) {
    if (!graph[node].bus.empty() && graph[node].bus == name) return node;
  }
  std::string known;
  for (const NodeId node : endpoints(graph)) {
    if (known.size() < 200) topology::append(known, short_name(graph, node));
  }
  return topology::invalid("no node is called '{}'; there are {}, ...", name, known);
}

Result<std::vector<NodeId>> find_ranks(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<NodeId> ranks;
  for (const std::string& name : names) {
    TUTTI_TRY(const NodeId node, find_node(graph, name));
    ranks.push_back(node);
  }
  if (names.empty()) ranks = topology::default_endpoints(graph);
  if (ranks.size() >= 2) return ranks;
  const bool has_gpus = !graph.all(NodeKind::kGpu).empty();
  const std::string has = counted(static_cast<int>(ranks.size()), has_gpus ? "GPU" : "NUMA node");
  if (!names.empty())
    return topology::invalid("one rank is on {}; name two nodes or more", names[0]);
  return topology::invalid(
      "the machine has {}, and ranks need two or more: name nodes (tutti topo show lists them), or "
      "choose a machine with --model or --from",
      has);
}

std::string short_name(const Graph& graph, NodeId node) {
  const std::string& name = graph[node].name;
  const bool several = graph.all(NodeKind::kHost).size() > 1;
  return !several && name.starts_with("host0/") ? name.substr(6) : name;
}

std::string counted(int count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

std::string rate_text(double rate) {
  if (rate <= 0) return "?";
  return rate < 10 ? fmt::format("{:.2f}", rate) : fmt::format("{:.1f}", rate);
}

std::string wrapped(const std::string& text, std::size_t indent) {
  constexpr std::size_t kWidth = 100;
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t room = kWidth - (at == 0 ? 0 : indent);
    std::size_t end = std::min(text.size(), at + room);
    if (end < text.size()) {
      const std::size_t blank = text.rfind(' ', end);
      if (blank != std::string::npos && blank > at) end = blank;
    }
    if (at != 0) lines += "\n" + std::string(indent, ' ');
    lines += text.substr(at, end - at);
    at = end + (end < text.size() && text[end] == ' ' ? 1 : 0);
  }
  return lines + "\n";
}

void define_topo(const perf::Command& app, int& exit_code) {
  const auto topo = app.add_subcommand("topo", "See a machine, say what is wrong with it");
  topo.require_subcommand(1, 1);
  topo.footer(
      "Examples:\n  tutti topo show\n  tutti topo show --model hgx-h100 --svg h100.svg\n"
      "  tutti topo why gpu0 mlx5_3 --from topo.xml\n  tutti topo capture machine.tar.gz");
#define TUTTI_TOPO_COMMAND(name) define_topo_##name(topo, exit_code);
#include "tools/topo/topo.def"
#undef TUTTI_TOPO_COMMAND
}

Result<std::vector<std::size_t>> sizes_named(const std::string& text) {
  std::vector<std::size_t> sizes;
  for (const std::string_view part : topology::split(text, ',')) {
    const auto bytes = perf::parse_size(std::string(part));
    if (!bytes || *bytes < 4 || *bytes > std::size_t{1} << 40)
      return topology::invalid("--sizes: '{}' is no size from 4 to 1024G, as 64K", part);
    sizes.push_back(*bytes);
  }
  return sizes;
}

}  // namespace tutti::tools
