// File: topology/graph/graph.h: a machine, or many, as a value: nodes, links, and for every number
// where it came from.
//
// Probes and readers make graphs, models make graphs; paths, bounds, embeddings, checks and
// pictures are functions of a graph and of nothing else. So whatever is computed on a machine can
// be computed elsewhere from its file (text.h).
//
// Invariants (validate.h says which a graph breaks): names are unique and have no white
// space; links join two different nodes that exist; bandwidths are gigabytes (1e9 bytes) a second
// of payload that a program can get, not signalling rates, and never negative; 0 with
// Origin::kUnknown means that nobody knows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::topology {

// What a node is. The words are those of the text form.
enum class NodeKind : std::uint8_t {
#define TUTTI_NODE_KIND(enumerator, text, ...) enumerator,
#include "topology/graph/node_kinds.def"
#undef TUTTI_NODE_KIND
};
// What joins two nodes.
enum class LinkKind : std::uint8_t {
#define TUTTI_LINK_KIND(enumerator, text, ...) enumerator,
#include "topology/graph/link_kinds.def"
#undef TUTTI_LINK_KIND
};
// Where a number came from, least trusted first.
enum class Origin : std::uint8_t {
#define TUTTI_ORIGIN(enumerator, text) enumerator,
#include "topology/graph/origins.def"
#undef TUTTI_ORIGIN
};

std::string_view to_string(NodeKind kind);
std::string_view to_string(LinkKind kind);
std::string_view to_string(Origin origin);
std::optional<NodeKind> parse_node_kind(std::string_view text);
std::optional<LinkKind> parse_link_kind(std::string_view text);
std::optional<Origin> parse_origin(std::string_view text);

/// A node of a graph, by its place in Graph::nodes.
struct NodeId {
  std::uint32_t value = 0xffffffff;
  bool exists() const { return value != 0xffffffff; }
  friend auto operator<=>(NodeId, NodeId) = default;  // NOLINT(modernize-use-nullptr): not a 0.
};

/// A number and where it came from. Text of an unknown one: "?".
struct Quantity {
  double value = 0;
  Origin origin = Origin::kUnknown;
  bool known() const { return origin != Origin::kUnknown; }
  friend bool operator==(const Quantity&, const Quantity&) = default;
};

/// What is inside a chip or a box limits nobody: the figure of NCCL's model for such links.
inline constexpr Quantity kInside{5000, Origin::kTable};

struct Node {
  NodeKind kind = NodeKind::kHost;
  std::string name{};  // "host0", "host0/gpu3", "leaf2": unique in the graph.
  NodeId host{};       // The host it is in; none for hosts themselves and for the network.
  int index = -1;      // As the driver or the kernel counts: GPU 3, NUMA node 1. -1: not known.
  std::string bus{};   // PCI address, "0000:07:00.0", lower case, 4-digit domain if it fits; or "".
  /// What else was read: "vendor", "device", "class", "sm", "speed_mbps", "guid", "firmware", ...
  /// Keys are [a-z0-9_]+, values any printable text.
  std::map<std::string, std::string> facts{};
  friend bool operator==(const Node&, const Node&) = default;
};

/// A PCI Express rate: transfers a second and lane in 1e9 ("16 GT/s"), and lanes. 0: not known.
struct PcieRate {
  double gigatransfers = 0;
  int width = 0;
  bool known() const { return gigatransfers > 0 && width > 0; }
  friend bool operator==(const PcieRate&, const PcieRate&) = default;
};

/// What a PCI Express link does now, and what both its ends could do. Plans use the maximum, for a
/// link sleeps when nobody uses it; checks look at both.
struct Pcie {
  PcieRate current, maximum;
  friend bool operator==(const Pcie&, const Pcie&) = default;
};

/// All parallel connections of one kind between two nodes.
struct Link {
  LinkKind kind = LinkKind::kPcie;
  NodeId a{}, b{};
  int count = 1;                   // Connections: 18 NVLinks. The bandwidths are of all together.
  Quantity forward{}, backward{};  // GB/s from a to b, and from b to a.
  Quantity latency_us{};
  std::optional<Pcie> pcie{};
  friend bool operator==(const Link&, const Link&) = default;
};

/// A fact; "" if absent.
const std::string& fact(const Node& node, const std::string& key);
/// The same as a whole number.
std::optional<long long> number_fact(const Node& node, const std::string& key);

/// What a list of GPUs like "gpu1:chipset gpu4" says of one: the reason, "-" for none, "" if it is
/// not in the list. As long as the list lives.
std::string_view listed(std::string_view list, const Node& gpu);

/// NVLink and xGMI, which join GPUs.
inline bool is_fast(LinkKind kind) { return kind == LinkKind::kNvlink || kind == LinkKind::kXgmi; }
/// What is outside of hosts.
inline bool is_network(LinkKind kind) {
  return kind == LinkKind::kPort || kind == LinkKind::kNetwork;
}

struct Graph {
  std::vector<Node> nodes;
  std::vector<Link> links;
  /// Where the graph came from, one line each: "read from topo.xml (NCCL)", "no NVML: ...".
  std::vector<std::string> notes;

  NodeId add(Node node);
  void add(Link link) { links.push_back(link); }
  /// Adds a link that is alike in both directions; valid until the next is added.
  Link& join(LinkKind kind, NodeId a, NodeId b, Quantity each_way = {}) {
    return links.emplace_back(Link{kind, a, b, 1, each_way, each_way});
  }
  const Node& operator[](NodeId id) const { return nodes[id.value]; }
  Node& operator[](NodeId id) { return nodes[id.value]; }
  /// By name; none if there is no such node. Linear: for people's input.
  NodeId find(std::string_view name) const;
  /// All nodes, or those of a kind, in the order of the graph.
  std::vector<NodeId> all() const;
  std::vector<NodeId> all(NodeKind kind) const;
  friend bool operator==(const Graph&, const Graph&) = default;
};

/// The neighbours of each node: built once for a graph, invalid once the graph changes.
class Adjacency {
 public:
  struct Edge {
    NodeId to;
    std::uint32_t link;  // In Graph::links.
    bool forward;        // Leaves from the link's a.
  };
  explicit Adjacency(const Graph& graph);
  const std::vector<Edge>& from(NodeId node) const { return edges_[node.value]; }

 private:
  std::vector<std::vector<Edge>> edges_;
};

/// The NUMA node that a node hangs off by PCI Express or, with `c2c`, by C2C; none if there is none
/// or, beyond 64 links, where the way up got.
NodeId numa_above(const Graph& graph, NodeId node, bool c2c);

/// The bandwidth of an edge: forward or backward.
const Quantity& bandwidth(const Graph& graph, const Adjacency::Edge& edge);

/// Payload of a PCI Express link, GB/s in one direction: after line coding and packet headers, the
/// figures of NCCL's model (16 GT/s x16: 24). 0 where the rate is not known.
double pcie_bandwidth(const PcieRate& rate);

}  // namespace tutti::topology
