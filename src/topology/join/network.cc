#include "topology/join/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "topology/graph/words.h"
#include "topology/join/links.h"

namespace tutti::topology {
namespace {

constexpr int kPorts = 64;             // A switch's: Quantum-2 and Rosetta both have 64.
constexpr int kLeafNics = kPorts / 2;  // NVIDIA's DGX SuperPOD: 32 hosts share the leaves.
constexpr int kRouterNics = 16;        // A Rosetta switch: 16 NICs, 31 local ports, 17 global.
constexpr int kRouterGlobals = 17;
constexpr int kMostParameter = 4096;

struct Nic {
  NodeId node;
  std::size_t host;   // Counted in the order of the graph.
  std::size_t place;  // In its host.
  double gbs;
};

struct Ends {
  std::vector<Nic> nics;
  std::size_t hosts = 0;
  std::size_t places = 0;  // The most NICs that a host has.
  double gbs = 0;          // The fastest NIC's: the rate of the network's own links.
};

std::optional<int> parse_parameter(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value && *value >= 1 && *value <= kMostParameter ? value : std::nullopt;
}

// The parameter as a number; `standard` where there is none.
Result<int> number(std::string_view parameter, int standard, std::string_view what) {
  if (parameter.empty()) return standard;
  if (const auto value = parse_parameter(parameter)) return *value;
  return invalid("{} has to be 1 to {}, not '{:.32}'", what, kMostParameter, parameter);
}

Ends find_ends(const Graph& graph) {
  Ends ends;
  std::vector<std::size_t> place(graph.nodes.size()), host(graph.nodes.size());
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.kind == NodeKind::kHost) host[i] = ends.hosts++;
    if (node.kind != NodeKind::kNic || !node.host.exists()) continue;
    const double mbps = parse_number<double>(fact(node, "speed_mbps")).value_or(0);
    if (mbps <= 0) continue;
    const std::size_t in_host = place[node.host.value]++;
    ends.nics.push_back({{i}, host[node.host.value], in_host, mbps / 8000});
    ends.places = std::max(ends.places, in_host + 1);
    ends.gbs = std::max(ends.gbs, mbps / 8000);
  }
  return ends;
}

NodeId add_switch(Graph& graph, std::string name, int index) {
  return graph.add({NodeKind::kNetworkSwitch, std::move(name), {}, index});
}

void add_port(Graph& graph, const Nic& nic, NodeId to) {
  graph.add(make_link(LinkKind::kPort, nic.node, to, nic.gbs));
}

Status join_plane(Graph& graph, const Ends& ends, std::string_view parameter) {
  if (!parameter.empty()) return invalid("the network plane takes no parameter");
  const NodeId plane = graph.add({NodeKind::kPlane, "network"});
  for (const Nic& nic : ends.nics) add_port(graph, nic, plane);
  return ok();
}

// Two tiers: `leaves[i]` has `down[i]` NICs. Spines are as many as their ports need, a power of
// two as in NVIDIA's reference (4, 8, 16, 16 of them for one to four units of 32 hosts), so that a
// leaf's uplinks divide evenly.
void add_spines(Graph& graph, const std::vector<NodeId>& leaves, const std::vector<int>& down,
                int ratio, double gbs) {
  if (leaves.size() < 2) return;
  int total = 0, most = 0;
  for (const int nics : down) {
    const int up = (nics + ratio - 1) / ratio;
    total += up;
    most = std::max(most, up);
  }
  int spines = 1;
  while (spines * kPorts < total && spines * 2 <= most) spines *= 2;
  std::vector<NodeId> nodes;
  for (int i = 0; i < spines; ++i) nodes.push_back(add_switch(graph, fmt::format("spine{}", i), i));
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const int up = (down[i] + ratio - 1) / ratio;
    const int each = std::max(1, up / spines);
    for (const NodeId spine : nodes) {
      graph.add(make_link(LinkKind::kNetwork, leaves[i], spine, gbs, each));
    }
  }
  if (spines * kPorts < total) {
    graph.notes.push_back(fmt::format(
        "network: {} uplinks need more than two tiers of switches with {} ports; each of the {} "
        "spines stands for the tiers above",
        total, kPorts, spines));
  }
}

// Both fat trees: `leaf_of` says which leaf a NIC has, `name` how that leaf is called.
template <class LeafOf, class Name>
void join_leaves(Graph& graph, const Ends& ends, int ratio, LeafOf leaf_of, Name name) {
  std::vector<NodeId> by_number, leaves;
  std::vector<int> down_of, down;
  for (const Nic& nic : ends.nics) {
    const std::size_t number = leaf_of(nic);
    if (number >= by_number.size()) {
      by_number.resize(number + 1);
      down_of.resize(number + 1);
    }
    if (!by_number[number].exists()) {
      by_number[number] = add_switch(graph, name(number), static_cast<int>(number));
    }
    ++down_of[number];
    add_port(graph, nic, by_number[number]);
  }
  for (std::size_t i = 0; i < by_number.size(); ++i) {
    if (!by_number[i].exists()) continue;
    leaves.push_back(by_number[i]);
    down.push_back(down_of[i]);
  }
  add_spines(graph, leaves, down, ratio, ends.gbs);
}

Status join_rail(Graph& graph, const Ends& ends, std::string_view parameter) {
  TUTTI_TRY(const int ratio, number(parameter, 1, "the oversubscription of rail"));
  const auto leaf_of = [&](const Nic& nic) {
    return nic.host / kLeafNics * ends.places + nic.place;
  };
  const auto name = [&](std::size_t leaf) {
    return fmt::format("rail{}/leaf{}", leaf % ends.places, leaf / ends.places);
  };
  join_leaves(graph, ends, ratio, leaf_of, name);
  return ok();
}

Status join_fat_tree(Graph& graph, const Ends& ends, std::string_view parameter) {
  TUTTI_TRY(const int ratio, number(parameter, 1, "the oversubscription of fat-tree"));
  const Nic* const first = ends.nics.data();
  const auto leaf_of = [&](const Nic& nic) {
    return static_cast<std::size_t>(&nic - first) / kLeafNics;
  };
  join_leaves(graph, ends, ratio, leaf_of,
              [](std::size_t leaf) { return fmt::format("leaf{}", leaf); });
  return ok();
}

// Links between two groups: the global ports of a group shared among its peers, at most one for
// each pair of switches taken in turn.
void join_groups(Graph& graph, const std::vector<std::vector<NodeId>>& groups, double gbs) {
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = a + 1; b < groups.size(); ++b) {
      const std::size_t least = std::min(groups[a].size(), groups[b].size());
      const std::size_t count =
          std::clamp<std::size_t>(least * kRouterGlobals / (groups.size() - 1), 1, least);
      for (std::size_t i = 0; i < count; ++i) {
        graph.add(make_link(LinkKind::kNetwork, groups[a][(b + i) % groups[a].size()],
                            groups[b][(a + i) % groups[b].size()], gbs));
      }
    }
  }
}

Status join_dragonfly(Graph& graph, const Ends& ends, std::string_view parameter) {
  TUTTI_TRY(const int in_group, number(parameter, 32, "the switches in a group of dragonfly"));
  const std::size_t size = static_cast<std::size_t>(in_group);
  std::vector<std::vector<NodeId>> groups;
  for (std::size_t i = 0; i < ends.nics.size(); ++i) {
    if (i % kRouterNics == 0) {
      const std::size_t number = i / kRouterNics;
      if (number % size == 0) groups.emplace_back();
      groups.back().push_back(
          add_switch(graph, fmt::format("group{}/switch{}", number / size, number % size),
                     static_cast<int>(number)));
    }
    add_port(graph, ends.nics[i], groups.back().back());
  }
  for (const auto& group : groups) join_all(graph, LinkKind::kNetwork, group, ends.gbs);
  join_groups(graph, groups, ends.gbs);
  return ok();
}

Result<std::vector<std::size_t>> torus_sizes(std::string_view parameter, std::size_t hosts) {
  std::vector<std::size_t> sizes;
  if (parameter.empty()) {
    std::size_t side = 1;
    for (std::size_t i = 1; i * i <= hosts; ++i) {
      if (hosts % i == 0) side = i;
    }
    return std::vector<std::size_t>{hosts / side, side};
  }
  std::size_t product = 1;
  for (const std::string_view text : split(parameter, 'x')) {
    const auto size = parse_parameter(text);
    if (!size || sizes.size() == 3) {
      return invalid("the sizes of a torus are AxB or AxBxC, not '{:.32}'", parameter);
    }
    sizes.push_back(static_cast<std::size_t>(*size));
    product *= sizes.back();
  }
  if (sizes.size() < 2 || product != hosts) {
    return invalid("a torus of {:.32} has not as many places as there are hosts, {}", parameter,
                   hosts);
  }
  return sizes;
}

Status join_torus(Graph& graph, const Ends& ends, std::string_view parameter) {
  TUTTI_TRY(const std::vector<std::size_t> sizes, torus_sizes(parameter, ends.hosts));
  std::vector<NodeId> routers;
  std::vector<double> host_gbs(ends.hosts);
  for (std::size_t i = 0; i < ends.hosts; ++i) {
    const int index = static_cast<int>(i);
    routers.push_back(add_switch(graph, fmt::format("router{}", i), index));
  }
  for (const Nic& nic : ends.nics) {
    add_port(graph, nic, routers[nic.host]);
    host_gbs[nic.host] += nic.gbs;
  }
  const double directions = 2.0 * static_cast<double>(sizes.size());
  std::size_t stride = 1;
  for (const std::size_t size : sizes) {
    for (std::size_t i = 0; i < ends.hosts; ++i) {
      const std::size_t at = i / stride % size;
      // In a ring of two both directions lead to the same neighbour: one link that counts twice.
      if (size == 1 || (size == 2 && at == 1)) continue;
      const std::size_t next = i + ((at + 1) % size) * stride - at * stride;
      graph.add(make_link(LinkKind::kNetwork, routers[i], routers[next],
                          std::min(host_gbs[i], host_gbs[next]) / directions, size == 2 ? 2 : 1));
    }
    stride *= size;
  }
  return ok();
}

struct Network {
  std::string_view name;
  Status (*join)(Graph& graph, const Ends& ends, std::string_view parameter);
};
constexpr std::array kNetworks{
    Network{"plane", join_plane},       Network{"rail", join_rail},
    Network{"fat-tree", join_fat_tree}, Network{"dragonfly", join_dragonfly},
    Network{"torus", join_torus},
};

}  // namespace

Status join_network(Graph& graph, std::string_view spec) {
  const std::size_t slash = spec.find('/');
  const std::string_view name = spec.substr(0, slash);
  const std::string_view parameter = slash == std::string_view::npos ? "" : spec.substr(slash + 1);
  const auto known = std::find_if(kNetworks.begin(), kNetworks.end(),
                                  [&](const Network& network) { return network.name == name; });
  if (known == kNetworks.end()) {
    return invalid("there is no network '{:.64}'; there are {}", name,
                   list_of(kNetworks, [](const Network& network) { return network.name; }));
  }
  return known->join(graph, find_ends(graph), parameter);
}

}  // namespace tutti::topology
