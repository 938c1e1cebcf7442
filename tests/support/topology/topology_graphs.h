// File: support/topology/topology_graphs.h: small machines, built by hand, that bounds, paths and
// embeddings are judged on.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::test {

inline topology::NodeId add(topology::Graph& graph, topology::NodeKind kind, std::string name,
                            topology::NodeId host = {}) {
  topology::Node node;
  node.kind = kind;
  node.name = std::move(name);
  node.host = host;
  return graph.add(node);
}

inline void join(topology::Graph& graph, topology::LinkKind kind, topology::NodeId a,
                 topology::NodeId b, double gbps) {
  topology::Link link;
  link.kind = kind;
  link.a = a;
  link.b = b;
  link.forward = link.backward = {gbps, topology::Origin::kTable};
  graph.add(link);
}

/// GPUs of a host on one NVSwitch.
inline std::vector<topology::NodeId> add_nvswitch_host(topology::Graph& graph, int host, int gpus,
                                                       double gbps) {
  using namespace topology;
  const std::string prefix = "host" + std::to_string(host);
  const NodeId self = add(graph, NodeKind::kHost, prefix);
  const NodeId nvswitch = add(graph, NodeKind::kNvSwitch, prefix + "/nvswitch0", self);
  std::vector<NodeId> ids;
  for (int i = 0; i < gpus; ++i) {
    ids.push_back(add(graph, NodeKind::kGpu, prefix + "/gpu" + std::to_string(i), self));
    join(graph, LinkKind::kNvlink, ids.back(), nvswitch, gbps);
  }
  return ids;
}

inline topology::Graph nvswitch_box(int gpus = 8, double gbps = 450) {
  topology::Graph graph;
  add_nvswitch_host(graph, 0, gpus, gbps);
  return graph;
}

/// Hosts with an NVSwitch and a NIC next to each GPU; NIC i is on rail i.
inline topology::Graph rails(int hosts, int gpus, double nvlink, double nic) {
  using namespace topology;
  Graph graph;
  std::vector<NodeId> planes;
  for (int i = 0; i < gpus; ++i) {
    planes.push_back(add(graph, NodeKind::kPlane, "rail" + std::to_string(i)));
  }
  for (int h = 0; h < hosts; ++h) {
    const auto ids = add_nvswitch_host(graph, h, gpus, nvlink);
    const NodeId self = graph[ids[0]].host;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string number = std::to_string(i);
      const std::string prefix = "host" + std::to_string(h);
      const NodeId pcie = add(graph, NodeKind::kPcieSwitch, prefix + "/pcie" + number, self);
      const NodeId port = add(graph, NodeKind::kNic, prefix + "/nic" + number, self);
      join(graph, LinkKind::kPcie, ids[i], pcie, nic);
      join(graph, LinkKind::kPcie, pcie, port, nic);
      join(graph, LinkKind::kPort, port, planes[i], nic);
    }
  }
  return graph;
}

/// DGX-1V: 8 GPUs of 6 NVLinks each, 4 double links a quad pair; 20 GB/s a link.
inline topology::Graph dgx1() {
  using namespace topology;
  Graph graph;
  const NodeId host = add(graph, NodeKind::kHost, "host0");
  for (int i = 0; i < 8; ++i) add(graph, NodeKind::kGpu, "host0/gpu" + std::to_string(i), host);
  constexpr std::array<std::array<int, 3>, 16> kLinks{{{0, 1, 1},
                                                       {0, 2, 1},
                                                       {0, 3, 2},
                                                       {0, 4, 2},
                                                       {1, 2, 2},
                                                       {1, 3, 1},
                                                       {1, 5, 2},
                                                       {2, 3, 2},
                                                       {2, 6, 1},
                                                       {3, 7, 1},
                                                       {4, 5, 1},
                                                       {4, 6, 1},
                                                       {4, 7, 2},
                                                       {5, 6, 2},
                                                       {5, 7, 1},
                                                       {6, 7, 2}}};
  const auto gpus = graph.all(NodeKind::kGpu);
  for (const auto& [a, b, count] : kLinks) {
    join(graph, LinkKind::kNvlink, gpus[static_cast<std::size_t>(a)],
         gpus[static_cast<std::size_t>(b)], 20.0 * count);
    graph.links.back().count = count;
  }
  return graph;
}

/// Two sockets, two PCIe switches each, two GPUs a switch.
inline topology::Graph pcie_box(double pcie = 24, double socket = 10) {
  using namespace topology;
  Graph graph;
  const NodeId host = add(graph, NodeKind::kHost, "host0");
  std::vector<NodeId> numas;
  int gpu = 0;
  for (int n = 0; n < 2; ++n) {
    numas.push_back(add(graph, NodeKind::kNuma, "host0/numa" + std::to_string(n), host));
    for (int s = 0; s < 2; ++s) {
      const NodeId upstream =
          add(graph, NodeKind::kPcieSwitch, "host0/switch" + std::to_string(2 * n + s), host);
      join(graph, LinkKind::kPcie, numas.back(), upstream, pcie);
      for (int g = 0; g < 2; ++g) {
        join(graph, LinkKind::kPcie, upstream,
             add(graph, NodeKind::kGpu, "host0/gpu" + std::to_string(gpu++), host), pcie);
      }
    }
  }
  join(graph, LinkKind::kSocket, numas[0], numas[1], socket);
  return graph;
}

}  // namespace tutti::test
