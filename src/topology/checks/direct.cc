// File: topology/checks/direct.cc: what keeps two devices apart, from the facts that the checks
// use.
#include <fmt/format.h>

#include "topology/checks/direct.h"
#include "topology/checks/parts.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

using Verdict = Direct::Verdict;

// Between two GPUs: what NVML and CUDA refuse.
Direct between_gpus(const Graph& graph, NodeId from, NodeId to) {
  const std::string_view nvml = listed(fact(graph[from], "no_p2p"), graph[to]);
  if (!nvml.empty()) {
    return {Verdict::kRefused, fmt::format("the driver refuses peer access (NVML: {})", nvml)};
  }
  if (!listed(fact(graph[from], "no_peer_access"), graph[to]).empty()) {
    return {Verdict::kRefused, "the driver refuses peer access (CUDA)"};
  }
  return {};
}

Direct with_nic(const Graph& graph, NodeId gpu, NodeId nic) {
  // What has no GUID does no RDMA: its driver sends from host memory.
  if (fact(graph[nic], "guid").empty()) return {};
  const GpuDirect found = gpudirect_of(graph, gpu, nic);
  if (found.state == GpuDirect::State::kOff) return {Verdict::kRefused, found.evidence};
  if (found.state != GpuDirect::State::kDepends) return {};
  return {Verdict::kDepends, found.evidence + "; the GPU's driver may offer dma-buf"};
}

// Over NVLink nothing passes a bridge.
bool over_bridges(PathClass type) {
  return type == PathClass::kSwitch || type == PathClass::kSwitches || type == PathClass::kHost ||
         type == PathClass::kSystem;
}

Direct detour_of(const Machine& machine, NodeId from, NodeId to) {
  const Graph& graph = machine.graph;
  const auto bridges = acs_between(machine, from, to);
  if (!bridges.empty()) {
    return {Verdict::kDetour,
            fmt::format("access control (ACS) is on at {}", graph[bridges[0]].name)};
  }
  for (const NodeId end : {from, to}) {
    const std::string type = translation_of(graph[end]);
    if (!type.empty()) {
      return {Verdict::kDetour,
              fmt::format("the IOMMU translates addresses of {} ({})", graph[end].name, type)};
    }
  }
  return {};
}

}  // namespace

Direct direct_access(const Graph& graph, NodeId from, NodeId to) {
  if (graph[from].kind == NodeKind::kNic) std::swap(from, to);
  const NodeKind other = graph[to].kind;
  if (graph[from].kind != NodeKind::kGpu || from == to || graph[from].host != graph[to].host ||
      (other != NodeKind::kGpu && other != NodeKind::kNic)) {
    return {};
  }
  Direct direct =
      other == NodeKind::kGpu ? between_gpus(graph, from, to) : with_nic(graph, from, to);
  const Adjacency adjacency(graph);
  const Machine machine(graph);
  const PathOptions plain{.relays = false};
  if (direct.verdict == Verdict::kRefused) {
    const NodeId numa = machine.numa_of(from);
    if (!numa.exists()) return direct;
    Path up = best_path(graph, adjacency, from, numa, plain);
    Path down = best_path(graph, adjacency, numa, to, plain);
    if (up.type == PathClass::kNone || down.type == PathClass::kNone) return direct;
    direct.staged = {std::move(up), std::move(down)};
    return direct;
  }
  if (!over_bridges(best_path(graph, adjacency, from, to, plain).type)) return direct;
  Direct detour = detour_of(machine, from, to);
  return detour.verdict == Verdict::kDetour ? detour : direct;
}

}  // namespace tutti::topology
