#include "tools/topo/gpu_rates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "perf/sweep/noise.h"
#include "topology/embedding/routes.h"

namespace tutti::tools {
namespace {

using topology::Graph;
using topology::Link;
using topology::LinkKind;
using topology::NodeId;
using topology::NodeKind;
using topology::Over;
using topology::Quantity;

constexpr double kNoise = 0.95;  // Figures are alike beyond this.
constexpr double kSlower = 0.9;  // A copy is slower than its way says below this.
constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// Without the host, of which there is one.
std::string short_name(const Graph& graph, NodeId node) {
  const std::string& name = graph[node].name;
  return name.substr(name.find('/') + 1);
}

std::string rate_text(double rate) {
  return rate < 10 ? fmt::format("{:.2f}", rate) : fmt::format("{:.1f}", rate);
}

/// A direction of a link: its place in Graph::links, and whether forward.
using Edge = std::pair<std::uint32_t, bool>;

struct Way {
  NodeId from, to;
  double rate;
  topology::Route route;
};

class Writer {
 public:
  Writer(Graph& graph, const GpuRates& rates) : graph_(graph), rates_(rates) {
    for (const GpuRates::Gpu& gpu : rates.gpus) {
      NodeId found;
      for (const NodeId node : graph.all(NodeKind::kGpu)) {
        if (!gpu.bus.empty() && graph[node].bus == gpu.bus) found = node;
      }
      nodes_.push_back(found);
    }
  }

  std::string run() {
    find_ways();
    for (const Way& way : ways_) {
      for (const topology::EdgeUse& use : way.route) {
        double& most = most_[{use.link, use.forward}];
        most = std::max(most, way.rate * use.share);
      }
    }
    for (const Way& way : ways_) choose(way);
    set_figures();
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].exists() && rates_.gpus[i].inside > 0)
        graph_[nodes_[i]].facts["memory_gbs"] = fmt::format("{:.2f}", rates_.gpus[i].inside);
    }
    return table() + slower_words();
  }

 private:
  Quantity& figure(Edge edge) const {
    Link& link = graph_.links[edge.first];
    return edge.second ? link.forward : link.backward;
  }
  NodeId end_at_gpu(Edge edge) const {
    const Link& link = graph_.links[edge.first];
    for (const NodeId end : {link.a, link.b}) {
      if (graph_[end].kind == NodeKind::kGpu) return end;
    }
    return {};
  }
  bool inside(const topology::EdgeUse& use) const {
    return graph_.links[use.link].kind == LinkKind::kInternal;
  }

  void find_ways() {
    topology::Router router(graph_);
    const auto add = [&](NodeId from, NodeId to, double rate, bool fast) {
      if (!from.exists() || !to.exists() || rate <= 0) return;
      auto route = fast ? router.find(from, to, Over::kFast) : std::nullopt;
      if (!route) route = router.find(from, to, Over::kSlow);
      if (route) ways_.push_back({from, to, rate, *std::move(route)});
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].exists()) continue;
      const NodeId memory = topology::numa_above(graph_, nodes_[i], true);
      add(memory, nodes_[i], rates_.gpus[i].in, false);
      add(nodes_[i], memory, rates_.gpus[i].out, false);
    }
    for (const GpuRates::Pair& pair : rates_.pairs) {
      if (!pair.staged) add(nodes_[pair.from], nodes_[pair.to], pair.rate, true);
    }
  }

  /// What the graph says that a copy can reach, GB/s.
  double said_of(const Way& way) const {
    double least = kUnlimited;
    for (const topology::EdgeUse& use : way.route) {
      const Quantity& at = figure({use.link, use.forward});
      if (at.known()) least = std::min(least, at.value / use.share);
    }
    return least;
  }

  /// Chooses the links that this copy speaks for.
  void choose(const Way& way) {
    const double said = said_of(way);
    const bool slower = way.rate < kSlower * said;
    std::vector<Edge> edges;
    bool at_gpu = false;
    for (const topology::EdgeUse& use : way.route) {
      const Edge edge{use.link, use.forward};
      const Quantity& at = figure(edge);
      const bool narrowest = at.known() && at.value / use.share * kNoise <= said;
      const bool blamed = most_[edge] * kNoise <= way.rate * use.share;
      if (inside(use) || !(slower ? blamed : narrowest)) continue;
      edges.push_back(edge);
      at_gpu = at_gpu || end_at_gpu(edge).exists();
    }
    for (const Edge& edge : edges) {
      if (!slower || !at_gpu || end_at_gpu(edge).exists()) chosen_[edge] = most_[edge];
    }
  }

  /// Links of one kind and number get one figure as long as they differ by noise.
  void set_figures() {
    std::map<std::pair<LinkKind, int>, std::vector<std::pair<double, Edge>>> kinds;
    for (const auto& [edge, rate] : chosen_) {
      const Link& link = graph_.links[edge.first];
      kinds[{link.kind, link.count}].emplace_back(rate, edge);
    }
    for (auto& [kind, links] : kinds) {
      std::sort(links.rbegin(), links.rend());
      for (std::size_t first = 0; first < links.size();) {
        std::vector<double> alike;
        std::size_t end = first;
        for (; end < links.size() && links[end].first >= kNoise * links[first].first; ++end)
          alike.push_back(links[end].first);
        const double rate = std::round(100 * perf::median(alike)) / 100;
        for (; first < end; ++first)
          figure(links[first].second) = {std::max(rate, 0.01), topology::Origin::kMeasured};
      }
    }
  }

  std::string name(std::size_t gpu) const {
    return nodes_[gpu].exists() ? short_name(graph_, nodes_[gpu]) : rates_.gpus[gpu].bus;
  }

  std::string table() const {
    std::string text;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const GpuRates::Gpu& gpu = rates_.gpus[i];
      text += gpu.why_not.empty()
                  ? fmt::format("  {:<10} memory {:.1f}, from the host {}, to it {} GB/s{}\n",
                                name(i), gpu.inside, rate_text(gpu.in), rate_text(gpu.out),
                                nodes_[i].exists() ? "" : "; not in the graph")
                  : fmt::format("  {:<10} not measured: {}\n", name(i), gpu.why_not);
    }
    if (rates_.pairs.empty()) return text;
    text += fmt::format("  {:<10}", "to, GB/s");
    for (std::size_t to = 0; to < nodes_.size(); ++to) text += fmt::format(" {:>7}", name(to));
    bool staged = false;
    for (std::size_t from = 0; from < nodes_.size(); ++from) {
      text += fmt::format("\n  {:<10}", name(from));
      for (std::size_t to = 0; to < nodes_.size(); ++to) {
        const auto pair = std::find_if(
            rates_.pairs.begin(), rates_.pairs.end(),
            [&](const GpuRates::Pair& one) { return one.from == from && one.to == to; });
        const bool there = pair != rates_.pairs.end();
        staged = staged || (there && pair->staged);
        text +=
            fmt::format(" {:>7}", there ? rate_text(pair->rate) + (pair->staged ? "*" : "") : "-");
      }
    }
    return text + (staged ? "\n  *: peer access is refused; by the memory of the host\n" : "\n");
  }

  /// Copies for which no link can be blamed, alike ones together.
  std::string slower_words() const {
    std::map<std::pair<double, double>, std::pair<std::string, int>> lines;
    for (const Way& way : ways_) {
      const double said = said_of(way);
      if (said == kUnlimited || way.rate >= kSlower * said) continue;
      auto& [words, count] = lines[{std::round(way.rate), std::round(said)}];
      if (++count == 1)
        words = fmt::format("  {} -> {} {} GB/s, of {} by its links: no single one is to blame",
                            short_name(graph_, way.from), short_name(graph_, way.to),
                            rate_text(way.rate), rate_text(said));
    }
    std::string text;
    for (const auto& [rates, line] : lines) {
      text += line.first;
      if (line.second > 1) text += fmt::format("; so are {} more", line.second - 1);
      text += "\n";
    }
    return text;
  }

  Graph& graph_;
  const GpuRates& rates_;
  std::vector<NodeId> nodes_;  // By GPU; none: the graph lacks it.
  std::vector<Way> ways_;
  std::map<Edge, double> most_;    // What the fastest copy over it reached.
  std::map<Edge, double> chosen_;  // Those that get it as their figure.
};

}  // namespace

std::string write_rates(Graph& graph, const GpuRates& rates) { return Writer(graph, rates).run(); }

}  // namespace tutti::tools
