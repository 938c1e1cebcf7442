#include "cuda/comm/topology_dump.h"

#include <string>

#include "base/log.h"
#include "base/output.h"
#include "cuda/comm/host_graph.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

/// In a graph of several hosts the same addresses stand for devices of each.
void add_ranks(topology::Graph& graph, const DeviceRank& self, const std::vector<DeviceInfo>& all) {
  using topology::NodeKind;
  if (graph.all(NodeKind::kHost).size() != 1) return;
  const std::vector<int>& of = self.machine.hosts.of;
  for (const topology::NodeId gpu : graph.all(NodeKind::kGpu)) graph[gpu].facts.erase("rank");
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!of.empty() && of[rank] != of[self.index()]) continue;
    const std::string bus = topology::parse_bus(all[rank].bus);
    for (const topology::NodeId gpu : graph.all(NodeKind::kGpu)) {
      if (graph[gpu].bus != bus) continue;
      graph[gpu].facts.emplace("rank", std::to_string(rank));
      if (all[rank].capability > 0)
        graph[gpu].facts.emplace("sm", std::to_string(all[rank].capability));
    }
  }
}

Status write(const DeviceRank& self, const std::vector<DeviceInfo>& all) {
  TUTTI_TRY(auto found, machine_graph(self, all));
  add_ranks(found.graph, self, all);
  TUTTI_TRY(const std::string text, topology::write_nccl_xml(found.graph));
  return write_file(self.settings.topology_dump, text);
}

}  // namespace

void dump_topology(const DeviceRank& self, const std::vector<DeviceInfo>& all) {
  const std::string& path = self.settings.topology_dump;
  if (path.empty() || self.me.value != self.settings.topology_dump_rank) return;
  if (const Status written = write(self, all); !written) {
    log::warn(log::Part::kDevices, "TUTTI_TOPOLOGY_DUMP={}: it was not written: {}", path,
              written.error().what);
  } else {
    log::info(log::Part::kDevices, "TUTTI_TOPOLOGY_DUMP={}: the topology was written", path);
  }
}

}  // namespace tutti
