// File: topology/models/other.cc: boxes without NVLink: AMD's, plain PCI Express, and no GPU.
#include "topology/models/model.h"
#include "topology/models/parts.h"

namespace tutti::topology {
namespace {

// Payload of one xGMI link of an MI300X, GB/s and direction: RCCL's figure for gfx94x (its
// signalling rate is 64).
constexpr double kXgmiMi300x = 48;

constexpr GpuPart kMi300x{"MI300X", "0x1002", "0x74a1", "gfx942", kGen5x16};
constexpr GpuPart kL40s{"L40S", "0x10de", "0x26b9", "sm89", kGen4x16};
constexpr NicPart kConnectX6{"0x15b3", "0x101b", "mlx5_", 200000, kGen4x16};
constexpr NicPart kConnectX7{"0x15b3", "0x1021", "mlx5_", 400000, kGen5x16};

void mi300x_host(HostBuilder& host, Graph& graph) {
  host.join_sockets(kSocketEpyc);  // Two of the 9004 series.
  for (int i = 0; i < 8; ++i) host.unit(i / 4, kGen5x16, {kMi300x}, {kConnectX7});
  join_all(graph, LinkKind::kXgmi, host.gpus(), kXgmiMi300x);
}

void pcie_8_host(HostBuilder& host, Graph&) {
  host.join_sockets(kSocketSapphireRapids);
  for (int i = 0; i < 4; ++i) {
    host.unit(i / 2, kGen4x16, {kL40s, kL40s},
              i % 2 == 0 ? std::vector{kConnectX6} : std::vector<NicPart>{});
  }
}

void pcie_4_host(HostBuilder& host, Graph&) {
  host.join_sockets(kSocketSapphireRapids);
  for (int i = 0; i < 4; ++i) host.gpu(host.numa(i / 2), kL40s);
  host.nic(host.numa(0), kConnectX6);
}

void cpu_2s_host(HostBuilder& host, Graph&) {
  host.join_sockets(kSocketSapphireRapids);
  for (int i = 0; i < 2; ++i) host.nic(host.numa(i), kConnectX6);
}

}  // namespace

Graph make_mi300x(int size) { return hosts<mi300x_host, 2>(size); }
Graph make_pcie_8(int size) { return hosts<pcie_8_host, 2>(size); }
Graph make_pcie_4(int size) { return hosts<pcie_4_host, 2>(size); }
Graph make_cpu_2s(int size) { return hosts<cpu_2s_host, 2>(size); }

}  // namespace tutti::topology
