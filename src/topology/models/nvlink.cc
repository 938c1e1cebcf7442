// File: topology/models/nvlink.cc: NVIDIA's boxes with NVLink, and their cloud instances.
//
// Wiring: NVIDIA's architecture papers of V100, DGX-2, A100, H100 and Blackwell; PCI Express and
// NIC places as public captures of these machines show them (nvidia-smi topo -m of DGX-1V and HGX
// H100, hwloc's of DGX-2, Azure's ND A100 v4, the topology files that AWS publishes).
#include <fmt/format.h>

#include <array>

#include "topology/models/model.h"
#include "topology/models/parts.h"

namespace tutti::topology {
namespace {

constexpr GpuPart kV100{"V100-SXM2", "0x10de", "0x1db1", "sm70", kGen3x16};
constexpr GpuPart kV100Dgx2{"V100-SXM3", "0x10de", "0x1db8", "sm70", kGen3x16};
constexpr GpuPart kA100{"A100-SXM4-40GB", "0x10de", "0x20b0", "sm80", kGen4x16};
constexpr GpuPart kA100Gen3{"A100-SXM4-40GB", "0x10de", "0x20b0", "sm80", kGen3x16};
constexpr GpuPart kH100{"H100-SXM5-80GB", "0x10de", "0x2330", "sm90", kGen5x16};
constexpr GpuPart kH200{"H200-SXM5-141GB", "0x10de", "0x2335", "sm90", kGen5x16};
constexpr GpuPart kB200{"B200", "0x10de", "0x2901", "sm100", kGen5x16};
constexpr GpuPart kGb200{"GB200", "0x10de", "0x2941", "sm100"};
constexpr NicPart kConnectX4{"0x15b3", "0x1013", "mlx5_", 100000, kGen3x16};
constexpr NicPart kConnectX5{"0x15b3", "0x1017", "mlx5_", 100000, kGen3x16};
constexpr NicPart kConnectX6{"0x15b3", "0x101b", "mlx5_", 200000, kGen4x16};
constexpr NicPart kConnectX7{"0x15b3", "0x1021", "mlx5_", 400000, kGen5x16};
constexpr NicPart kEfa1{"0x1d0f", "0xefa0", "efa_", 100000, kGen3x16};
constexpr NicPart kEfa2{"0x1d0f", "0xefa1", "efa_", 100000, kGen4x16};

// Parallel NVLinks between two GPUs of a DGX-1 with V100: a hybrid cube mesh. Six links a GPU.
struct MeshEdge {
  std::size_t a, b;
  int count;
};
constexpr MeshEdge kCubeMesh[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
                                  {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
                                  {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};

void dgx1_v100_host(HostBuilder& host, Graph& graph) {
  host.join_sockets(kSocketBroadwell);  // Two Xeon E5-2698 v4.
  for (int i = 0; i < 4; ++i) host.unit(i / 2, kGen3x16, {kV100, kV100}, {kConnectX4});
  for (const MeshEdge& edge : kCubeMesh) {
    graph.add(make_link(LinkKind::kNvlink, host.gpus()[edge.a], host.gpus()[edge.b], kNvlinkV100,
                        edge.count));
  }
}

// Two boards of 8 GPUs and 6 NVSwitches: each GPU has one link to each switch of its board, and
// each switch eight links to the one across.
void dgx2_host(HostBuilder& host, Graph& graph) {
  host.join_sockets(kSocketSkylake);  // Two Xeon 8168.
  for (int top = 0; top < 4; ++top) {
    const NodeId upper = host.pcie_switch(host.numa(top / 2), kGen3x16);
    for (int i = 0; i < 2; ++i) {
      const NodeId lower = host.pcie_switch(upper, kGen3x16);
      host.gpu(lower, kV100Dgx2);
      host.gpu(lower, kV100Dgx2);
      host.nic(lower, kConnectX5);
    }
  }
  std::array<NodeId, 12> switches;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    switches[i] = host.add(NodeKind::kNvSwitch, fmt::format("nvswitch{}", i), static_cast<int>(i));
    for (std::size_t gpu = i / 6 * 8; gpu < i / 6 * 8 + 8; ++gpu) {
      graph.add(make_link(LinkKind::kNvlink, host.gpus()[gpu], switches[i], kNvlinkV100));
    }
  }
  for (std::size_t i = 0; i < 6; ++i) {
    graph.add(make_link(LinkKind::kNvlink, switches[i], switches[i + 6], kNvlinkV100, 8));
  }
}

// Two EPYC 7742 with four NUMA nodes each (the delivered setting); the GPUs hang off every second.
void dgx_a100_host(HostBuilder& host, Graph&) {
  host.join_packages(4, kSocketEpyc);
  for (const int numa : {3, 1, 7, 5})
    host.unit(numa, kGen4x16, {kA100, kA100}, {kConnectX6, kConnectX6});
  host.nvswitches(std::vector<int>(6, 2), kNvlinkA100);
}

// HGX boards from H100 on: each GPU shares a PCI Express switch with a 400 Gb/s NIC of its own.
template <const GpuPart& kGpu>
void hgx_host(HostBuilder& host, Graph&) {
  const bool hopper = kGpu.architecture == "sm90";
  host.join_sockets(hopper ? kSocketSapphireRapids : kSocketEmeraldRapids);
  for (int i = 0; i < 8; ++i) host.unit(i / 4, kGen5x16, {kGpu}, {kConnectX7});
  if (hopper) {
    host.nvswitches({5, 4, 4, 5}, kNvlinkH100);
  } else {
    host.nvswitches({9, 9}, kNvlinkB200);
  }
}

// AWS p4d.24xlarge: four groups of two GPUs and one EFA, as its published topology file has them;
// the instance sees Gen3 ports.
void p4d_host(HostBuilder& host, Graph&) {
  host.join_sockets(kSocketSkylake);  // Xeon 8275CL (Cascade Lake).
  for (int i = 0; i < 4; ++i) host.unit(i / 2, kGen3x16, {kA100Gen3, kA100Gen3}, {kEfa1});
  host.nvswitches(std::vector<int>(6, 2), kNvlinkA100);
}

// AWS p5.48xlarge: each GPU with four EFA of 100 Gb/s under one switch. The processors (EPYC 7R13)
// have Gen4 ports.
void p5_host(HostBuilder& host, Graph&) {
  host.join_sockets(kSocketEpyc);
  for (int i = 0; i < 8; ++i) host.unit(i / 4, kGen4x16, {kH100}, {kEfa2, kEfa2, kEfa2, kEfa2});
  host.nvswitches({5, 4, 4, 5}, kNvlinkH100);
}

}  // namespace

// A rack: 18 trays with two Grace and four GPUs each are hosts of their own; each GPU has one link
// to each of the 18 NVSwitches (nine switch trays of two), so the rack is one NVLink domain. A
// GPU's C2C: five links of 44.7 GB/s, as NVML says of the GB300 that was captured.
Graph make_gb200_nvl72(int racks) {
  constexpr int kTrays = 18, kSwitches = 18, kC2cLinks = 5;
  constexpr double kC2cGbs = 44.712;
  Graph graph;
  for (int rack = 0; rack < racks; ++rack) {
    std::vector<NodeId> gpus;
    for (int tray = 0; tray < kTrays; ++tray) {
      HostBuilder host(graph, rack * kTrays + tray, 2);
      graph[host.host()].facts["rack"] = std::to_string(rack);
      host.join_sockets(kSocketArm);
      for (int i = 0; i < 4; ++i) {
        const NodeId gpu = host.gpu(kGb200);
        graph.add(make_link(LinkKind::kC2c, host.numa(i / 2), gpu, kC2cGbs, kC2cLinks));
        host.nic(host.numa(i / 2), kConnectX7);
        gpus.push_back(gpu);
      }
    }
    for (int i = 0; i < kSwitches; ++i) {
      const NodeId nvswitch =
          graph.add({NodeKind::kNvSwitch, fmt::format("rack{}/nvswitch{}", rack, i), {}, i});
      for (const NodeId gpu : gpus) {
        graph.add(make_link(LinkKind::kNvlink, gpu, nvswitch, kNvlinkB200));
      }
    }
  }
  return graph;
}

Graph make_dgx1_v100(int size) { return hosts<dgx1_v100_host, 2>(size); }
Graph make_dgx2(int size) { return hosts<dgx2_host, 2>(size); }
Graph make_dgx_a100(int size) { return hosts<dgx_a100_host, 8>(size); }
Graph make_hgx_h100(int size) { return hosts<hgx_host<kH100>, 2>(size); }
Graph make_hgx_h200(int size) { return hosts<hgx_host<kH200>, 2>(size); }
Graph make_hgx_b200(int size) { return hosts<hgx_host<kB200>, 2>(size); }
Graph make_p4d(int size) { return hosts<p4d_host, 2>(size); }
Graph make_p5(int size) { return hosts<p5_host, 2>(size); }

}  // namespace tutti::topology
