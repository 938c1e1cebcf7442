// File: topology/models/parts.h: the parts that models are put together from.
//
// A HostBuilder adds one host to a graph and everything in it by the conventions of reader.h:
// names, PCI ports on both sides of a switch, addresses. Figures that hold for a kind of part
// (latencies, PCI Express payload) are here; those of a system are in its model.
#pragma once
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"
#include "topology/join/links.h"

namespace tutti::topology {

// Lanes by PCI Express generation.
inline constexpr PcieRate kGen3x8{8, 8}, kGen3x16{8, 16}, kGen4x16{16, 16}, kGen5x16{32, 16};

// Payload of one NVLink in GB/s and direction, by compute capability: the figures of NCCL's model
// (src/graph/topo.h of 2.30.7), about 80% of the signalling rate of 25 (Blackwell: 50).
inline constexpr double kNvlinkV100 = 20, kNvlinkA100 = 20, kNvlinkH100 = 20.6, kNvlinkB200 = 40.1;

// Between two sockets in GB/s and direction for the traffic of devices, from the same source.
inline constexpr double kSocketBroadwell = 6, kSocketSkylake = 10, kSocketSapphireRapids = 22,
                        kSocketEmeraldRapids = 40, kSocketEpyc = 16, kSocketArm = 6;

/// What a model calls a GPU: facts of the node. `vendor` and `device` are PCI ids.
struct GpuPart {
  std::string_view name, vendor, device, architecture;  // "sm" or "gfx" and number: "sm90".
  PcieRate rate{};
};
struct NicPart {
  std::string_view vendor, device;
  std::string_view prefix;  // The prefix of the device's name: "mlx5_".
  int speed_mbps = 0;
  PcieRate rate;
};

class HostBuilder {
 public:
  /// Adds host `index` with so many NUMA nodes.
  HostBuilder(Graph& graph, int index, int numa_nodes);

  NodeId host() const { return host_; }
  NodeId numa(int index) const { return numa_[static_cast<std::size_t>(index)]; }
  const std::vector<NodeId>& gpus() const { return gpus_; }

  /// Joins the NUMA nodes pairwise: each is a socket.
  void join_sockets(double gbs);
  /// Puts so many NUMA nodes each into a package, and joins the packages pairwise.
  void join_packages(int numa_each, double gbs);

  // Adds a part below a NUMA node (with a root port) or a switch (with a downstream port).
  NodeId pcie_switch(NodeId parent, PcieRate rate);
  NodeId gpu(NodeId parent, const GpuPart& part);
  NodeId nic(NodeId parent, const NicPart& part);
  /// A GPU that has no PCI Express link worth modelling.
  NodeId gpu(const GpuPart& part);

  /// A switch below a NUMA node, and parts below the switch.
  void unit(int numa, PcieRate rate, const std::vector<GpuPart>& gpus,
            const std::vector<NicPart>& nics);

  /// A node of this host called `name`.
  NodeId add(NodeKind kind, std::string_view name, int index = -1, std::string bus = {});
  /// So many NVSwitches, each joined to every GPU by links[i] of the links of a GPU.
  void nvswitches(const std::vector<int>& links, double gbs_each);

 private:
  std::string next_bus();
  NodeId below(NodeId parent);  // A root port or a downstream port under the parent.
  NodeId attach(NodeId parent, NodeId part, PcieRate rate);

  Graph& graph_;
  NodeId host_;
  std::vector<NodeId> numa_, gpus_;
  int buses_ = 0;
  int nics_ = 0;
};

/// A model's make(): `size` hosts, each put together by kHost.
template <void (*kHost)(HostBuilder& host, Graph& graph), int kNumaNodes>
Graph hosts(int size) {
  Graph graph;
  for (int i = 0; i < size; ++i) {
    HostBuilder host(graph, i, kNumaNodes);
    kHost(host, graph);
  }
  return graph;
}

}  // namespace tutti::topology
