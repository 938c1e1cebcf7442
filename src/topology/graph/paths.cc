#include "topology/graph/paths.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <queue>

namespace tutti::topology {
namespace {

struct Description {
  std::string_view name, meaning;
};
constexpr std::array<Description, 12> kClasses{{
    {"LOC", "the same node"},
    {"NVL", "NVLink or xGMI"},
    {"NVB", "NVLink or xGMI through one GPU"},
    {"C2C", "NVLink-C2C to the CPU"},
    {"PIX", "at most one PCIe switch between"},
    {"PXB", "several PCIe switches, no CPU"},
    {"P2C", "NVLink-C2C to the CPU, then PCIe"},
    {"PXN", "NVLink to a GPU, then its NIC"},
    {"PHB", "through a CPU"},
    {"SYS", "from one NUMA node to another"},
    {"NET", "over the network"},
    {"DIS", "no path"},
}};

constexpr unsigned bit(LinkKind kind) { return 1U << static_cast<unsigned>(kind); }
constexpr unsigned bit(NodeKind kind) { return 1U << static_cast<unsigned>(kind); }

constexpr unsigned kNvlinks = bit(LinkKind::kNvlink) | bit(LinkKind::kXgmi);
constexpr unsigned kPci = bit(LinkKind::kPcie) | bit(LinkKind::kInternal);
constexpr unsigned kPciNodes =
    bit(NodeKind::kPciePort) | bit(NodeKind::kPcieSwitch) | bit(NodeKind::kCard);
constexpr unsigned kCpuNodes = kPciNodes | bit(NodeKind::kNuma);

/// What nobody knows is not what limits a path.
double width(const Graph& graph, const Adjacency::Edge& edge) {
  const Quantity& rate = bandwidth(graph, edge);
  return rate.known() ? rate.value : std::numeric_limits<double>::infinity();
}

/// What paths of a class are made of. A path has two parts, either of which may be empty; between
/// them it passes through `between`, if that is not 0.
struct Rule {
  PathClass type;
  unsigned first_links, first_nodes;
  unsigned between = 0;
  unsigned second_links = 0, second_nodes = 0;
};
constexpr std::array kRules{
    Rule{PathClass::kNvlink, kNvlinks, bit(NodeKind::kNvSwitch)},
    Rule{PathClass::kRelayed, kNvlinks, bit(NodeKind::kNvSwitch), bit(NodeKind::kGpu), kNvlinks,
         bit(NodeKind::kNvSwitch)},
    Rule{PathClass::kC2c, bit(LinkKind::kC2c), 0},
    Rule{PathClass::kSwitches, kPci, kPciNodes},
    Rule{PathClass::kC2cPcie, bit(LinkKind::kC2c), 0, bit(NodeKind::kNuma), kPci, kPciNodes},
    Rule{PathClass::kC2cPcie, kPci, kPciNodes, bit(NodeKind::kNuma), bit(LinkKind::kC2c), 0},
    Rule{PathClass::kProxy, kNvlinks, bit(NodeKind::kNvSwitch), bit(NodeKind::kGpu), kPci,
         kPciNodes},
    Rule{PathClass::kProxy, kPci, kPciNodes, bit(NodeKind::kGpu), kNvlinks,
         bit(NodeKind::kNvSwitch)},
    Rule{PathClass::kHost, kPci | bit(LinkKind::kC2c), kCpuNodes},
    Rule{PathClass::kSystem, kPci | bit(LinkKind::kC2c) | bit(LinkKind::kSocket),
         kCpuNodes | bit(NodeKind::kPackage)},
    Rule{PathClass::kNetwork, ~0U, ~bit(NodeKind::kGpu)},
};

constexpr std::uint32_t kNotSought = ~std::uint32_t{0};

/// Searches the graph doubled: node n of part 0 or 1. A step from part 0 to part 1 happens in a
/// node of kind `between`. What is sought, by node: its place among the paths, or kNotSought.
class Search {
 public:
  Search(const Graph& graph, const Adjacency& adjacency, const Rule& rule, NodeId from,
         const std::vector<std::uint32_t>& sought, std::size_t left)
      : graph_(graph),
        adjacency_(adjacency),
        rule_(rule),
        from_(from),
        sought_(sought),
        left_(left) {}

  /// Gives edges to the paths that there are; returns their places.
  std::vector<std::uint32_t> run(std::vector<Path>& paths) {
    const auto widths = widest();
    std::map<double, std::vector<std::uint32_t>> alike;  // Places.
    for (const auto& [place, width] : widths) alike[width].push_back(place);
    for (const auto& [width, places] : alike) shortest(width, places, paths);
    std::vector<std::uint32_t> found;
    for (const auto& [place, width] : widths) found.push_back(place);
    return found;
  }

 private:
  using State = std::uint32_t;  // 2 * node + part.
  static constexpr double kUnreached = -1;

  State start() const { return 2 * from_.value; }
  /// The place of what is sought and reached; kNotSought: it is not.
  std::uint32_t goal(State state) const {
    return rule_.between == 0 || state % 2 == 1 ? sought_[state / 2] : kNotSought;
  }

  /// Calls visit(next, edge) for all steps from a state.
  template <class Visit>
  void expand(State state, Visit visit) const {
    const NodeId here{state / 2};
    const unsigned kind = bit(graph_[here].kind);
    std::uint32_t part = state % 2;
    const bool inside =
        here == from_ || (kind & (part == 0 ? rule_.first_nodes : rule_.second_nodes)) != 0;
    const bool turns = part == 0 && here != from_ && (kind & rule_.between) != 0;
    if (!inside && !turns) return;
    for (const Adjacency::Edge& edge : adjacency_.from(here)) {
      const unsigned link = bit(graph_.links[edge.link].kind);
      if (inside && (link & (part == 0 ? rule_.first_links : rule_.second_links)) != 0)
        visit(2 * edge.to.value + part, edge);
      if (turns && (link & rule_.second_links) != 0) visit(2 * edge.to.value + 1, edge);
    }
  }

  double width_of(const Adjacency::Edge& edge) const { return width(graph_, edge); }

  /// By place, the widest bottleneck of all paths to what is reached.
  std::map<std::uint32_t, double> widest() const {
    std::map<std::uint32_t, double> found;
    std::vector<double> best(2 * graph_.nodes.size(), kUnreached);
    std::priority_queue<std::pair<double, State>> queue;
    best[start()] = std::numeric_limits<double>::infinity();
    queue.push({best[start()], start()});
    while (!queue.empty() && found.size() < left_) {
      const double reached = queue.top().first;
      const State state = queue.top().second;
      queue.pop();
      if (reached < best[state]) continue;
      if (goal(state) != kNotSought) found.emplace(goal(state), reached);
      expand(state, [&](State next, const Adjacency::Edge& edge) {
        const double through = std::min(best[state], width_of(edge));
        if (through <= best[next]) return;
        best[next] = through;
        queue.push({through, next});
      });
    }
    return found;
  }

  /// The paths to these with the fewest edges that are at least so wide.
  void shortest(double least, const std::vector<std::uint32_t>& places,
                std::vector<Path>& paths) const {
    std::vector<std::pair<State, const Adjacency::Edge*>> came(2 * graph_.nodes.size(),
                                                               {0, nullptr});
    std::deque<State> queue{start()};
    for (std::size_t missing = places.size(); !queue.empty() && missing > 0;) {
      const State state = queue.front();
      queue.pop_front();
      const std::uint32_t place = goal(state);
      if (place != kNotSought && std::binary_search(places.begin(), places.end(), place)) {
        auto& edges = paths[place].edges;
        for (State at = state; at != start(); at = came[at].first)
          edges.push_back(*came[at].second);
        std::reverse(edges.begin(), edges.end());
        --missing;
      }
      expand(state, [&](State next, const Adjacency::Edge& edge) {
        if (next == start() || came[next].second != nullptr || width_of(edge) < least) return;
        came[next] = {state, &edge};
        queue.push_back(next);
      });
    }
  }

  const Graph& graph_;
  const Adjacency& adjacency_;
  const Rule& rule_;
  const NodeId from_;
  const std::vector<std::uint32_t>& sought_;
  const std::size_t left_;
};

/// Several NVSwitches, or links and switches, between two GPUs are used side by side.
void add_parallel(const Graph& graph, const Adjacency& adjacency, Path& path) {
  double sum = 0;
  int ways = 0;
  for (const Adjacency::Edge& out : adjacency.from(path.from)) {
    if ((bit(graph.links[out.link].kind) & kNvlinks) == 0) continue;
    const double first = bandwidth(graph, out).value;
    if (out.to == path.to) sum += first, ++ways;
    if (graph[out.to].kind != NodeKind::kNvSwitch) continue;
    for (const Adjacency::Edge& in : adjacency.from(out.to)) {
      if (in.to == path.to) sum += std::min(first, bandwidth(graph, in).value), ++ways;
    }
  }
  if (ways > 1) path.gigabytes_per_second = sum, path.ways = ways;
}

void finish(const Graph& graph, Path& path) {
  std::size_t switches = 0;
  for (std::size_t i = 0; i < path.edges.size(); ++i) {
    const Adjacency::Edge& edge = path.edges[i];
    path.latency_us += graph.links[edge.link].latency_us.value;
    if (width(graph, edge) < width(graph, path.edges[path.bottleneck])) path.bottleneck = i;
    if (i + 1 < path.edges.size() && graph[edge.to].kind == NodeKind::kPcieSwitch) ++switches;
  }
  path.gigabytes_per_second = bandwidth(graph, path.edges[path.bottleneck]).value;
  const bool to_cpu =
      graph[path.from].kind == NodeKind::kNuma || graph[path.to].kind == NodeKind::kNuma;
  if (path.type == PathClass::kSwitches && to_cpu)
    path.type = PathClass::kHost;
  else if (path.type == PathClass::kSwitches && switches <= 1)
    path.type = PathClass::kSwitch;
}

}  // namespace

bool crosses_bridges(const Graph& graph, const Path& path) {
  if (path.type != PathClass::kHost) return false;
  std::vector<std::string> bridges;
  NodeId here = path.from;
  for (std::size_t i = 0; i + 1 < path.edges.size(); ++i) {
    const NodeId next = path.edges[i].to;
    if (graph[next].kind == NodeKind::kNuma) {
      for (const NodeId port : {here, path.edges[i + 1].to}) {
        if (graph[port].kind != NodeKind::kPciePort) return false;  // The file has no root ports.
        const std::string& bus = graph[port].bus;
        bridges.push_back(bus.empty() ? fact(graph[port], "host_bridge")
                                      : bus.substr(0, bus.rfind(':')));
      }
    }
    here = next;
  }
  return bridges.size() == 2 && bridges[0] != bridges[1];
}

std::string_view name_of(const Graph& graph, const Path& path) {
  return crosses_bridges(graph, path) ? "NODE" : name_of(path.type);
}

std::string_view meaning_of(const Graph& graph, const Path& path) {
  return crosses_bridges(graph, path) ? "through a CPU, from one of its PCI roots to another"
                                      : meaning_of(path.type);
}

std::string_view name_of(PathClass type) { return kClasses[static_cast<std::size_t>(type)].name; }
std::string_view meaning_of(PathClass type) {
  return kClasses[static_cast<std::size_t>(type)].meaning;
}

std::vector<Path> best_paths(const Graph& graph, const Adjacency& adjacency, NodeId from,
                             std::span<const NodeId> to, const PathOptions& options) {
  std::vector<Path> paths(to.size());
  std::vector<std::uint32_t> sought(graph.nodes.size(), kNotSought);
  std::size_t left = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    paths[i].from = from;
    paths[i].to = to[i];
    if (to[i] == from) {
      paths[i].type = PathClass::kLocal;
      continue;
    }
    sought[to[i].value] = static_cast<std::uint32_t>(i);
    ++left;
  }
  for (const Rule& rule : kRules) {
    if (rule.type > options.worst || left == 0) break;
    const bool relays = rule.type == PathClass::kRelayed || rule.type == PathClass::kProxy;
    if (relays && !options.relays) continue;
    for (const std::uint32_t place :
         Search(graph, adjacency, rule, from, sought, left).run(paths)) {
      Path& path = paths[place];
      path.type = rule.type;
      finish(graph, path);
      if (path.type == PathClass::kNvlink) add_parallel(graph, adjacency, path);
      sought[path.to.value] = kNotSought;
      --left;
    }
  }
  return paths;
}

Path best_path(const Graph& graph, const Adjacency& adjacency, NodeId from, NodeId to,
               const PathOptions& options) {
  return best_paths(graph, adjacency, from, std::span(&to, 1), options).front();
}

}  // namespace tutti::topology
