// File: topology/checks/gpu.cc: links between GPUs: NVLink, xGMI, C2C, the fabric.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "topology/checks/parts.h"
#include "topology/graph/nccl_figures.h"

namespace tutti::topology {
namespace {

struct GpuLinks {
  int count = 0;
  std::map<NodeId, int> peers;  // Links by far end.
  bool nvswitch = false;
};

std::vector<GpuLinks> count_links(const Graph& graph) {
  std::vector<GpuLinks> links(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (!is_fast(link.kind)) continue;
    for (const auto& [near, far] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      links[near.value].count += link.count;
      links[near.value].peers[far] += link.count;
      links[near.value].nvswitch |= graph[far].kind == NodeKind::kNvSwitch;
    }
  }
  return links;
}

// "17 of 18 active" as the probe says it.
std::optional<std::pair<int, int>> active_of(const Node& gpu) {
  int active = 0, all = 0;
  const std::string& text = fact(gpu, "nvlinks");
  if (std::sscanf(text.c_str(), "%9d of %9d active", &active, &all) != 2) return {};
  return std::pair(active, all);
}

// Which NVSwitches of a fuller sibling this GPU has fewer links to, for the evidence.
std::string missing_at(const Graph& graph, const GpuLinks& own, const GpuLinks& full) {
  std::string list;
  for (const auto& [far, count] : full.peers) {
    if (graph[far].kind != NodeKind::kNvSwitch || list.size() > 200) continue;
    const auto at = own.peers.find(far);
    const int has = at == own.peers.end() ? 0 : at->second;
    if (has < count) list += fmt::format("; {} of {} to {}", has, count, graph[far].name);
  }
  return list;
}

}  // namespace

void check_gpu_links(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const std::vector<GpuLinks> links = count_links(graph);
  // GPUs of one make, in all hosts, have as many links as the one that has most.
  std::map<std::string, NodeId> fullest;
  std::map<std::string, std::pair<int, int>> lacking;  // How many have fewer, of how many.
  const auto make_of = [&](NodeId gpu) { return likeness(graph[gpu]) + fact(graph[gpu], "model"); };
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    NodeId& best = fullest.emplace(make_of(gpu), gpu).first->second;
    if (links[gpu.value].count > links[best.value].count) best = gpu;
  }
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    auto& [fewer, all] = lacking[make_of(gpu)];
    fewer += links[gpu.value].count < links[fullest[make_of(gpu)].value].count ? 1 : 0;
    ++all;
  }
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const Node& node = graph[gpu];
    const GpuLinks& own = links[gpu.value];
    const NodeId best = fullest[make_of(gpu)];
    const int most = links[best.value].count;
    const auto active = active_of(node);
    if (active && active->first > 0 && active->first < active->second) {
      findings.push_back(
          {Severity::kError, "nvlink-inactive", node.name,
           fmt::format("{} of {} NVLinks are down", active->second - active->first, active->second),
           fmt::format("nvlinks: {} (NVML)", fact(node, "nvlinks")),
           "nvidia-smi nvlink -s and -e; reseat or replace the GPU or its baseboard",
           loss_of(active->first, active->second)});
    } else if (own.count < most) {
      // Without switches boards may be wired so: of MI250X every second die has a link less.
      const auto [fewer, all] = lacking[make_of(gpu)];
      const bool by_design = !own.nvswitch && !links[best.value].nvswitch && fewer * 2 >= all;
      findings.push_back(
          {by_design ? Severity::kNote : Severity::kError,
           own.count == 0 ? "gpu-without-links" : "gpu-fewer-links", node.name,
           own.count == 0 ? "this GPU has no links to other GPUs, and others of its make do"
                          : "this GPU has fewer links than others of its make",
           fmt::format("{} links, {} has {}; {} of {} have fewer{}", own.count, graph[best].name,
                       most, fewer, all, missing_at(graph, own, links[best.value])),
           "nvidia-smi nvlink -s (rocm-smi --showtopo), and the state of the fabric manager",
           loss_of(own.count, most)});
    } else if (const auto sm = number_fact(node, "sm"); sm && own.nvswitch) {
      // All lack the same: boards with switches use every link of the chip.
      const int chip = most_nvlinks(static_cast<int>(std::clamp<long long>(*sm, 0, 10000)));
      if (own.count >= chip) continue;
      findings.push_back(
          {Severity::kError, "nvswitch-missing", node.name,
           "this GPU has fewer links than its chip, as have the others: an NVSwitch "
           "is missing",
           fmt::format("{} links, {} of a chip of sm {} (table)", own.count, chip, *sm),
           "look for NVSwitches that failed: nvidia-smi -q, lspci, the fabric "
           "manager's log",
           loss_of(own.count, chip)});
    }
  }
}

void check_unequal(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const Link& link : graph.links) {
    if (!is_fast(link.kind) && link.kind != LinkKind::kC2c) continue;
    if (!link.forward.known() || !link.backward.known()) continue;
    const double most = std::max(link.forward.value, link.backward.value);
    const double least = std::min(link.forward.value, link.backward.value);
    if (most <= least * 1.001) continue;
    findings.push_back({Severity::kWarning, "unequal-reverse", graph[link.a].name,
                        fmt::format("the {} link to {} is not equal in both directions",
                                    to_string(link.kind), graph[link.b].name),
                        fmt::format("{} GB/s there ({}), {} GB/s back ({})", link.forward.value,
                                    to_string(link.forward.origin), link.backward.value,
                                    to_string(link.backward.origin)),
                        "look for links that are down: nvidia-smi nvlink -s",
                        loss_of(least, most)});
  }
}

void check_fabric(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    if (!fact(graph[gpu], "fabric_uuid").empty() && fact(graph[gpu], "fabric_handles") == "no") {
      findings.push_back(
          {Severity::kWarning, "fabric-no-handles", graph[gpu].name,
           "the GPU is in an NVLink fabric, and its memory cannot be handed to other "
           "hosts of it",
           "no fabric handles (CUDA), and a fabric (NVML)",
           "look at nvidia-imex and its channels; in a container, whether it has "
           "them"});
    }
    // NVML: 0 not supported, 1 not started, 2 in progress, 3 completed.
    const auto state = number_fact(graph[gpu], "fabric_state");
    if (!state || *state == 0 || *state == 3) continue;
    findings.push_back({Severity::kError, "fabric-not-ready", graph[gpu].name,
                        *state == 2 ? "the GPU is still joining its NVLink fabric"
                                    : "the GPU has not joined its NVLink fabric",
                        fmt::format("fabric state {} (NVML), ready is 3", *state),
                        "look at the fabric manager: systemctl status nvidia-fabricmanager", 1});
  }
}

void check_p2p(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const std::vector<GpuLinks> links = count_links(graph);
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const std::string& refused = fact(graph[gpu], "no_p2p");
    const std::string& denied = fact(graph[gpu], "no_peer_access");
    if (refused.empty() && denied.empty()) continue;
    // Boards without NVLink are often sold without peer access; with it, it should work.
    const bool linked = links[gpu.value].count > 0;
    findings.push_back({linked ? Severity::kWarning : Severity::kNote, "p2p-refused",
                        graph[gpu].name, "the driver refuses access to other GPUs' memory",
                        refused.empty() ? fmt::format("no_peer_access: {} (CUDA), which NVML "
                                                      "allows",
                                                      denied)
                                        : fmt::format("no_p2p: {} (NVML)", refused),
                        "nvidia-smi topo -p2p r shows the reasons; ACS, IOMMU and the driver's "
                        "settings are the usual ones",
                        0});
  }
}

}  // namespace tutti::topology
