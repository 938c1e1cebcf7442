// File: topology/checks/gpu.cc: links between GPUs: NVLink, xGMI, C2C, the fabric.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "topology/checks/chips.h"
#include "topology/checks/parts.h"
#include "topology/graph/nccl_figures.h"

namespace tutti::topology {
namespace {

struct GpuLinks {
  int count = 0;
  double gbs = 0;
  std::map<NodeId, int> peers;  // Links by far end.
  bool nvswitch = false;
};

std::vector<GpuLinks> count_links(const Graph& graph) {
  std::vector<GpuLinks> links(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (!is_fast(link.kind)) continue;
    for (const auto& [near, far] : {std::pair(link.a, link.b), std::pair(link.b, link.a)}) {
      links[near.value].count += link.count;
      links[near.value].gbs += (near == link.a ? link.forward : link.backward).value;
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

// GPUs of one make, in all hosts, which should have as many links as the one that has most.
struct Make {
  NodeId fullest;
  int without = 0, fewer = 0, all = 0;  // Those with none, with fewer than the fullest, and all.
  bool nvswitch = false;
  bool pairs = true;  // Whether those with links have one peer each, as bridges join them.
};
using Makes = std::map<std::string, Make>;

// By node. A GPU of which nothing is known is like the first of its host.
std::vector<std::string> make_keys(const Graph& graph) {
  std::vector<std::string> keys(graph.nodes.size());
  std::map<NodeId, std::string> first;
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    std::string& key = keys[gpu.value];
    key = chip_key(graph[gpu]);
    const std::string& of_host = first.emplace(graph[gpu].host, key).first->second;
    if (key.find_first_not_of(' ') == std::string::npos) key = of_host;
  }
  return keys;
}

Makes makes_of(const Graph& graph, const std::vector<GpuLinks>& links,
               const std::vector<std::string>& keys) {
  Makes makes;
  const auto gpus = graph.all(NodeKind::kGpu);
  for (const NodeId gpu : gpus) {
    const GpuLinks& own = links[gpu.value];
    Make& make = makes[keys[gpu.value]];
    if (make.all++ == 0 || own.count > links[make.fullest.value].count) make.fullest = gpu;
    make.without += own.count == 0 ? 1 : 0;
    make.nvswitch |= own.nvswitch;
    make.pairs = make.pairs && own.peers.size() <= 1;
  }
  for (const NodeId gpu : gpus) {
    Make& make = makes[keys[gpu.value]];
    make.fewer += links[gpu.value].count < links[make.fullest.value].count ? 1 : 0;
  }
  return makes;
}

// Whether fewer links than others have may be how the machine was made.
bool by_design(const Node& gpu, const GpuLinks& own, const Make& make) {
  if (make.nvswitch) return false;
  // Boards may be wired so: of MI250X every second die has a link less.
  if ((own.count == 0 ? make.without : make.fewer) * 2 >= make.all) return true;
  // Bridges are bought for pairs, and not for all.
  const Chip* chip = chip_of(gpu);
  return chip != nullptr ? chip->nvlinks == 0 : own.count == 0 && make.pairs;
}

// All lack the same: boards with switches use every link of the GPU.
void judge_switched(const Node& gpu, const GpuLinks& own, Findings& findings) {
  const auto sm = number_fact(gpu, "sm");
  const Chip* chip = chip_of(gpu);
  if (!own.nvswitch || (!sm && chip == nullptr)) return;
  const int generation =
      chip != nullptr ? chip->sm : static_cast<int>(std::clamp<long long>(*sm, 0, 10000));
  const int due = chip != nullptr && chip->nvlinks > 0 ? chip->nvlinks : most_nvlinks(generation);
  if (own.count >= due) return;
  // Some sources know what all links of a pair carry, and count them as one.
  const double each = nvlink_bandwidth(generation).value;
  if (own.gbs > 1.5 * each * own.count && own.gbs > 0.9 * each * due) return;
  const Chip* lesser = chip == nullptr ? cut_down(generation, own.count) : nullptr;
  if (lesser != nullptr) {
    findings.push_back({Severity::kNote, "nvswitch-missing", gpu.name,
                        "this GPU has fewer links than its chip, as parts are sold",
                        fmt::format("{} links, {} of a chip of sm {}, {} of {} (table)", own.count,
                                    due, generation, lesser->nvlinks, lesser->name),
                        "look at the name of the GPU: nvidia-smi -L"});
    return;
  }
  findings.push_back(
      {Severity::kError, "nvswitch-missing", gpu.name,
       "this GPU has fewer links than its chip, as have the others: an NVSwitch is missing",
       fmt::format(
           "{} links, {} of {} (table)", own.count, due,
           chip != nullptr ? std::string(chip->name) : fmt::format("a chip of sm {}", generation)),
       "look for NVSwitches that failed: nvidia-smi -q, lspci, the fabric manager's log",
       loss_of(own.count, due)});
}

}  // namespace

void check_gpu_links(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const std::vector<GpuLinks> links = count_links(graph);
  const std::vector<std::string> keys = make_keys(graph);
  const Makes makes = makes_of(graph, links, keys);
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const Node& node = graph[gpu];
    const GpuLinks& own = links[gpu.value];
    const Make& make = makes.at(keys[gpu.value]);
    const GpuLinks& full = links[make.fullest.value];
    const auto active = active_of(node);
    if (active && active->first > 0 && active->first < active->second) {
      findings.push_back(
          {Severity::kError, "nvlink-inactive", node.name,
           fmt::format("{} of {} NVLinks are down", active->second - active->first, active->second),
           fmt::format("nvlinks: {} (NVML)", fact(node, "nvlinks")),
           "nvidia-smi nvlink -s and -e; reseat or replace the GPU or its baseboard",
           loss_of(active->first, active->second)});
    } else if (own.count < full.count) {
      const bool wired_so = by_design(node, own, make);
      findings.push_back(
          {wired_so ? Severity::kNote : Severity::kError,
           own.count == 0 ? "gpu-without-links" : "gpu-fewer-links", node.name,
           own.count == 0 ? "this GPU has no links to other GPUs, and others of its make do"
                          : "this GPU has fewer links than others of its make",
           fmt::format("{} links, {} has {}; {} of {} have fewer{}", own.count,
                       graph[make.fullest].name, full.count, make.fewer, make.all,
                       missing_at(graph, own, full)),
           wired_so ? "if it should have them: nvidia-smi nvlink -s (rocm-smi --showtopo)"
                    : "nvidia-smi nvlink -s (rocm-smi --showtopo), and the state of the fabric "
                      "manager",
           wired_so ? 0 : loss_of(own.count, full.count)});
    } else {
      judge_switched(node, own, findings);
    }
  }
}

void check_unlinked(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const std::vector<GpuLinks> links = count_links(graph);
  for (const auto& host : machine.hosts) {
    if (!host.node.exists()) continue;
    std::map<const Chip*, int> without;
    std::set<const Chip*> with;
    for (const NodeId gpu : host.gpus) {
      const Chip* chip = chip_of(graph[gpu]);
      if (chip == nullptr || chip->nvlinks == 0) continue;
      if (links[gpu.value].count > 0) with.insert(chip);
      ++without[chip];
    }
    for (const auto& [chip, count] : without) {
      // A GPU alone has nothing to be joined with.
      if (count < 2 || with.count(chip) != 0) continue;
      findings.push_back(
          {Severity::kWarning, "nvlink-hidden", graph[host.node].name,
           fmt::format("{} GPUs have {} NVLinks each, and nothing says what they join: figures "
                       "are of PCI Express alone",
                       count, chip->nvlinks),
           fmt::format("device {:#06x}: {} (table)", chip->device, chip->name),
           "run where libnvidia-ml.so.1 is, or import nvidia-smi's or NCCL's output; nvidia-smi "
           "nvlink -s shows whether they are up"});
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

namespace {

// What a list of refusals says: in short, if it says the same of all other GPUs of the host.
std::string refusals(const Graph& graph, NodeId gpu, const std::string& list) {
  std::string reason;
  int others = 0;
  for (const NodeId other : graph.all(NodeKind::kGpu)) {
    if (other == gpu || graph[other].host != graph[gpu].host) continue;
    const std::string own(listed(list, graph[other]));
    if (own.empty() || (others++ > 0 && own != reason)) return list;
    reason = own;
  }
  if (others < 2) return list;
  return reason == "-" ? fmt::format("all {} others", others)
                       : fmt::format("all {} others, {}", others, reason);
}

}  // namespace

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
                        refused.empty()
                            ? fmt::format("no_peer_access: {} (CUDA), which NVML "
                                          "allows",
                                          refusals(graph, gpu, denied))
                            : fmt::format("no_p2p: {} (NVML)", refusals(graph, gpu, refused)),
                        "nvidia-smi topo -p2p r shows the reasons; ACS, IOMMU and the driver's "
                        "settings are the usual ones",
                        0});
  }
}

}  // namespace tutti::topology
