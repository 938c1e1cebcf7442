#include "topology/probe/nic_paths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "topology/graph/paths.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

/// Two paths differ first by class, then by sockets, then by width.
constexpr int kPerClass = 10'000'000, kPerSocket = 100'000, kMostSockets = 99, kWidest = 99'999;

int distance_of(const Graph& graph, const Path& path) {
  const auto sockets =
      std::count_if(path.edges.begin(), path.edges.end(), [&](const Adjacency::Edge& edge) {
        return graph.links[edge.link].kind == LinkKind::kSocket;
      });
  // What nobody knows is not what limits a path.
  const double rate = path.gigabytes_per_second > 0 ? path.gigabytes_per_second : kWidest;
  return static_cast<int>(path.type) * kPerClass +
         std::min(static_cast<int>(sockets), kMostSockets) * kPerSocket + kWidest -
         static_cast<int>(std::min<double>(rate, kWidest));
}

/// The node of an RDMA device or its port, unless that is software; none: the graph has none.
NodeId node_of(const Graph& graph, std::string_view nic) {
  for (const NodeId node : graph.all(NodeKind::kNic)) {
    const std::string_view name = graph[node].name;
    const std::string_view own = name.substr(name.find('/') + 1);
    // A device with one port is called without it.
    if (own != nic && own != nic.substr(0, nic.find(':'))) continue;
    return fact(graph[node], "software_over").empty() ? node : NodeId{};
  }
  return {};
}

/// The nodes that paths of a place begin at; none: the graph does not show it.
std::vector<NodeId> starts_of(const Graph& graph, const Place& place) {
  std::vector<NodeId> starts;
  for (const NodeId node : graph.all(place.gpu.empty() ? NodeKind::kNuma : NodeKind::kGpu)) {
    const std::vector<int> cpus = parse_cpu_list(fact(graph[node], "cpus"));
    const bool has_cpu = std::any_of(cpus.begin(), cpus.end(), [&](int cpu) {
      const auto word = static_cast<std::size_t>(cpu) / 64;
      return word < place.cpus.size() && (place.cpus[word] >> (cpu % 64) & 1) != 0;
    });
    if (place.gpu.empty() ? has_cpu : graph[node].bus == place.gpu) starts.push_back(node);
  }
  return starts;
}

class Paths {
 public:
  Paths(const Graph& graph, std::span<const std::string> nics) : graph_(graph), adjacency_(graph) {
    for (const std::string& nic : nics) {
      const NodeId node = node_of(graph, nic);
      const auto known = std::find(nodes_.begin(), nodes_.end(), node);
      place_of_.push_back(static_cast<std::size_t>(known - nodes_.begin()));
      if (known == nodes_.end() && node.exists()) nodes_.push_back(node);
      if (!node.exists()) place_of_.back() = kNowhere;
    }
  }

  std::vector<NicPath> from(const Place& place) {
    std::vector<NicPath> found(place_of_.size());
    const std::vector<NodeId> starts = starts_of(graph_, place);
    if (starts.empty()) return found;
    for (std::size_t nic = 0; nic < found.size(); ++nic) {
      found[nic].distance = static_cast<int>(PathClass::kNone) * kPerClass;
      if (place_of_[nic] == kNowhere) continue;
      const Path* nearest = nullptr;
      for (const NodeId start : starts) {
        const Path& path = all_from(start)[place_of_[nic]];
        const int distance = distance_of(graph_, path);
        if (nearest != nullptr && distance >= found[nic].distance) continue;
        nearest = &path;
        found[nic].distance = distance;
      }
      found[nic].words = place.gpu.empty()
                             ? words_of(nodes_[place_of_[nic]], starts)
                             : fmt::format("{} from GPU {} ({})", name_of(nearest->type), place.gpu,
                                           meaning_of(nearest->type));
    }
    return found;
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  const std::vector<Path>& all_from(NodeId start) {
    const auto [known, is_new] = paths_.try_emplace(start);
    if (is_new)
      known->second = best_paths(graph_, adjacency_, start, nodes_,
                                 {.relays = false, .worst = PathClass::kSystem});
    return known->second;
  }

  /// What CPUs on these NUMA nodes have to do with a device.
  std::string words_of(NodeId nic, const std::vector<NodeId>& starts) const {
    const NodeId numa = numa_above(graph_, nic, false);
    std::vector<int> own;
    for (const NodeId start : starts) own.push_back(graph_[start].index);
    if (!numa.exists()) return "";
    const bool local = std::find(starts.begin(), starts.end(), numa) != starts.end();
    return fmt::format("NUMA node {}, {}", graph_[numa].index,
                       local ? "as the rank's CPUs"
                             : fmt::format("the rank's CPUs are on {}", fmt::join(own, ",")));
  }

  const Graph& graph_;
  const Adjacency adjacency_;
  std::vector<NodeId> nodes_;          // The devices'.
  std::vector<std::size_t> place_of_;  // By device asked for, in `nodes_`.
  std::map<NodeId, std::vector<Path>> paths_;
};

}  // namespace

std::vector<std::vector<NicPath>> nic_paths(const Graph& graph, std::span<const Place> places,
                                            std::span<const std::string> nics) {
  Paths paths(graph, nics);
  std::vector<std::vector<NicPath>> found;
  for (const Place& place : places) found.push_back(paths.from(place));
  return found;
}

}  // namespace tutti::topology
