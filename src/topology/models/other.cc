// File: topology/models/other.cc: boxes without NVLink: AMD's, plain PCI Express, and no GPU.
#include "topology/models/model.h"
#include "topology/models/parts.h"

namespace tutti::topology {
namespace {

// Payload of one xGMI link of an MI300X, GB/s and direction: RCCL's figure for gfx94x (its
// signalling rate is 64).
constexpr double kXgmiMi300x = 48;

constexpr GpuPart kMi300x{"MI300X", "0x1002", "0x74a1", "gfx942"};
constexpr GpuPart kL40s{"L40S", "0x10de", "0x26b9", "sm89"};
constexpr NicPart kConnectX6{"0x15b3", "0x101b", "mlx5_", 200000, kGen4x16};
constexpr NicPart kConnectX7{"0x15b3", "0x1021", "mlx5_", 400000, kGen5x16};

Graph make_mi300x(int size) {
  Graph graph;
  for (int index = 0; index < size; ++index) {
    HostBuilder host(graph, index, 2);  // Two EPYC of the 9004 series.
    host.join_sockets(kSocketEpyc);
    for (int i = 0; i < 8; ++i) {
      const NodeId pcie = host.pcie_switch(host.numa(i / 4), kGen5x16);
      host.gpu(pcie, kMi300x, kGen5x16);
      host.nic(pcie, kConnectX7);
    }
    for (std::size_t a = 0; a < 8; ++a) {
      for (std::size_t b = a + 1; b < 8; ++b) {
        graph.add(make_link(LinkKind::kXgmi, host.gpus()[a], host.gpus()[b], kXgmiMi300x));
      }
    }
  }
  return graph;
}

Graph make_pcie_8(int size) {
  Graph graph;
  for (int index = 0; index < size; ++index) {
    HostBuilder host(graph, index, 2);
    host.join_sockets(kSocketSapphireRapids);
    for (int i = 0; i < 4; ++i) {
      const NodeId pcie = host.pcie_switch(host.numa(i / 2), kGen4x16);
      host.gpu(pcie, kL40s, kGen4x16);
      host.gpu(pcie, kL40s, kGen4x16);
      if (i % 2 == 0) host.nic(pcie, kConnectX6);
    }
  }
  return graph;
}

Graph make_pcie_4(int size) {
  Graph graph;
  for (int index = 0; index < size; ++index) {
    HostBuilder host(graph, index, 2);
    host.join_sockets(kSocketSapphireRapids);
    for (int i = 0; i < 4; ++i) host.gpu(host.numa(i / 2), kL40s, kGen4x16);
    host.nic(host.numa(0), kConnectX6);
  }
  return graph;
}

Graph make_cpu_2s(int size) {
  Graph graph;
  for (int index = 0; index < size; ++index) {
    HostBuilder host(graph, index, 2);
    host.join_sockets(kSocketSapphireRapids);
    for (int i = 0; i < 2; ++i) host.nic(host.numa(i), kConnectX6);
  }
  return graph;
}

}  // namespace

#define TUTTI_MODEL(name) extern const Model name;
#include "topology/models/models.def"
#undef TUTTI_MODEL

constinit const Model mi300x_model{
    "mi300x", "8 MI300X, one xGMI link between every two, 8 NICs of 400 Gb/s", "rail", make_mi300x};
constinit const Model pcie_8_model{
    "pcie-8", "8 GPUs under 4 PCI Express switches, 2 sockets, 2 NICs of 200 Gb/s", "fat-tree",
    make_pcie_8};
constinit const Model pcie_4_model{"pcie-4", "4 GPUs on two sockets' own ports, 1 NIC of 200 Gb/s",
                                   "fat-tree", make_pcie_4};
constinit const Model cpu_2s_model{"cpu-2s", "two sockets with a NIC of 200 Gb/s each, no GPU",
                                   "fat-tree", make_cpu_2s};

}  // namespace tutti::topology
