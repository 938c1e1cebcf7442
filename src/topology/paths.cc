// A search over states, a node and a stage: what the path has been through so far. Class is a
// function of the last stage, so the best class is that of the best stage reached (of equally wide
// ones of a class, the first). For each state the widest way is found (Dijkstra with min for plus);
// the shortest way of that width is found when somebody asks.
#include "topology/paths.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <queue>

namespace tutti::topology {
namespace {

// Better stages first, as classes are.
enum Stage : std::uint8_t {
  kStart,     // At the node itself.
  kDirect,    // One NVLink.
  kSwitched,  // NVLinks through switches.
  kRelayed,   // Through a GPU.
  kChip,      // C2C.
  kLocal,     // PCIe without a switch.
  kSwitch,    // One PCIe switch.
  kSwitches,  // Several.
  kChipPcie,  // C2C, CPU, PCIe.
  kCpu,
  kNumas,
  kNetwork,
  kStages
};
constexpr std::array<PathClass, kStages> kClasses{
    PathClass::kLoc, PathClass::kNvl, PathClass::kNvl, PathClass::kNvb,
    PathClass::kC2c, PathClass::kPix, PathClass::kPix, PathClass::kPxb,
    PathClass::kP2c, PathClass::kPhb, PathClass::kSys, PathClass::kNet};

constexpr std::size_t state_of(NodeId node, Stage stage) {
  return std::size_t{node.value} * kStages + stage;
}
constexpr NodeId node_of(std::size_t state) {
  return {static_cast<std::uint32_t>(state / kStages)};
}
constexpr Stage stage_of(std::size_t state) { return static_cast<Stage>(state % kStages); }

bool is_cpu(NodeKind kind) { return kind == NodeKind::kNuma || kind == NodeKind::kPackage; }
bool is_nvlink(LinkKind kind) { return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi; }

// The stage after an NVLink between GPUs and switches: one GPU in between at most.
std::optional<Stage> after_nvlink(NodeKind from, Stage stage) {
  if (stage == kStart) return kDirect;
  if (stage > kRelayed) return std::nullopt;  // Came by another kind of link.
  if (from == NodeKind::kNvSwitch) return std::max(stage, kSwitched);
  return stage == kDirect ? std::optional(kRelayed) : std::nullopt;
}

// The stage after a link between a CPU and a chip beside it: C2C, or NVLink (POWER).
std::optional<Stage> after_chip(NodeKind from, Stage stage) {
  if (stage == kStart) return kChip;
  if (!is_cpu(from)) return std::nullopt;
  // From a device to the GPU is as near as from the GPU to the device.
  return stage == kCpu ? kChipPcie : std::max(stage, kChip);
}

// The stage after going within a host on PCIe, internal or socket links.
Stage after_bus(const Graph& graph, const Adjacency::Edge& edge, NodeKind from, Stage stage) {
  const NodeKind to = graph[edge.to].kind;
  if (graph.links[edge.link].kind == LinkKind::kSocket) return std::max(stage, kNumas);
  // Packages join NUMA nodes: a path that goes from NUMA node to package is on its way to another.
  if (is_cpu(from) && is_cpu(to)) return std::max(stage, kNumas);
  if (stage == kChip && is_cpu(from)) return kChipPcie;
  if (is_cpu(to)) return std::max(stage, kCpu);
  if (is_cpu(from)) return std::max(stage, kCpu);
  if (to == NodeKind::kPcieSwitch) {
    if (stage == kSwitch) return kSwitches;
    return std::max(stage, kSwitch);
  }
  return std::max(stage, kLocal);
}

// The stage after an edge, or nothing where no path may go. Nodes that end paths end them here:
// `stage` is what the path was when it came to `from`.
std::optional<Stage> advance(const Graph& graph, NodeId from, Stage stage,
                             const Adjacency::Edge& edge) {
  const NodeKind kind = graph[from].kind;
  const LinkKind link = graph.links[edge.link].kind;
  if (stage != kStart && kind == NodeKind::kHost) return std::nullopt;
  if (stage != kStart && kind == NodeKind::kGpu && !is_nvlink(link)) {
    return std::nullopt;
  }
  const bool network = link == LinkKind::kPort || link == LinkKind::kNetwork;
  if (network) return kNetwork;
  // Two PCIe links of a NIC are no way through it.
  if (stage != kStart && stage != kNetwork && kind == NodeKind::kNic &&
      graph[edge.to].kind != NodeKind::kCard) {
    return std::nullopt;
  }
  const bool cpu = is_cpu(kind) || is_cpu(graph[edge.to].kind);
  if (link == LinkKind::kC2c || (is_nvlink(link) && cpu)) return after_chip(kind, stage);
  if (is_nvlink(link)) return after_nvlink(kind, stage);
  if (stage == kNetwork) return kNetwork;
  // Came by NVLink, so this is a switch: it has no way out by PCIe.
  if (stage == kDirect || stage == kSwitched || stage == kRelayed) return std::nullopt;
  return after_bus(graph, edge, kind, stage);
}

// For comparing, an unknown width limits nothing.
double width_of(const Graph& graph, const Adjacency::Edge& edge) {
  const Quantity& quantity = bandwidth(graph, edge);
  return quantity.known() ? quantity.value : std::numeric_limits<double>::infinity();
}

constexpr std::array<std::string_view, 12> kNames{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                  "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};

}  // namespace

std::string_view to_string(PathClass path_class) {
  return kNames[static_cast<std::size_t>(path_class)];
}

PathSearch::PathSearch(const Graph& graph, const Adjacency& adjacency, NodeId from)
    : graph_(graph), adjacency_(adjacency), from_(from), widths_(graph.nodes.size() * kStages, -1) {
  std::priority_queue<std::pair<double, std::size_t>> queue;
  const std::size_t start = state_of(from, kStart);
  widths_[start] = std::numeric_limits<double>::infinity();
  queue.emplace(widths_[start], start);
  while (!queue.empty()) {
    const auto [width, state] = queue.top();
    queue.pop();
    if (width < widths_[state]) continue;
    for (const Adjacency::Edge& edge : adjacency.from(node_of(state))) {
      const auto stage = advance(graph, node_of(state), stage_of(state), edge);
      const double narrowed = std::min(width, width_of(graph, edge));
      if (!stage || narrowed <= 0) continue;
      double& best = widths_[state_of(edge.to, *stage)];
      if (narrowed <= best) continue;
      best = narrowed;
      queue.emplace(narrowed, state_of(edge.to, *stage));
    }
  }
}

// How to come to each state over links of at least this width, with the fewest. Breadth first from
// the start: of equally short ways the first in the graph's order is found. Few widths occur in a
// machine, so the trees are kept.
const PathSearch::Tree& PathSearch::fewest(double width) {
  Tree& tree = trees_[width];
  if (!tree.empty()) return tree;
  tree.resize(widths_.size());
  const std::size_t start = state_of(from_, kStart);
  std::vector<std::size_t> queue{start};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const std::size_t state = queue[i];
    for (const Adjacency::Edge& edge : adjacency_.from(node_of(state))) {
      const auto stage = advance(graph_, node_of(state), stage_of(state), edge);
      if (!stage || width_of(graph_, edge) < width) continue;
      const std::size_t next = state_of(edge.to, *stage);
      if (next == start || tree[next].edge != nullptr) continue;
      tree[next] = {state, &edge};
      queue.push_back(next);
    }
  }
  return tree;
}

Path PathSearch::to(NodeId node) {
  Path path;
  // The best class; of its stages (PIX and NVL have two) the widest.
  std::size_t goal = 0;
  double width = -1;
  for (std::uint8_t s = 0; s < kStages; ++s) {
    const std::size_t state = state_of(node, static_cast<Stage>(s));
    if (width >= 0 && kClasses[s] != path.path_class) break;
    if (widths_[state] <= width) continue;
    width = widths_[state];
    goal = state;
    path.path_class = kClasses[s];
  }
  if (width < 0) return path;
  const Tree& tree = fewest(width);
  for (std::size_t state = goal; tree[state].edge != nullptr; state = tree[state].before) {
    path.edges.push_back(*tree[state].edge);
  }
  std::reverse(path.edges.begin(), path.edges.end());
  path.nodes.push_back(from_);
  for (const Adjacency::Edge& edge : path.edges) {
    const Quantity& quantity = topology::bandwidth(graph_, edge);
    path.nodes.push_back(edge.to);
    path.latency_us += graph_.links[edge.link].latency_us.value;
    if (!quantity.known()) continue;
    const bool first = !path.bandwidth.known();
    path.bandwidth.value = first ? quantity.value : std::min(path.bandwidth.value, quantity.value);
    path.bandwidth.origin =
        first ? quantity.origin : std::min(path.bandwidth.origin, quantity.origin);
  }
  return path;
}

Path best_path(const Graph& graph, NodeId from, NodeId to) {
  const Adjacency adjacency(graph);
  return PathSearch(graph, adjacency, from).to(to);
}

}  // namespace tutti::topology
