// File: topology/checks/gpudirect.cc: whether a GPU and its nearest NIC can reach each other
// without host memory between, so far as facts say.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "topology/checks/parts.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

bool is_nvidia(const Node& gpu) { return fact(gpu, "vendor") == "0x10de"; }

// Whether the kernel can hand a GPU's memory to RDMA itself: dma-buf, from Linux 5.12. None: which
// kernel it is, nobody said.
std::optional<bool> has_dma_buf(const Node& host) {
  const std::string& text = fact(host, "kernel");
  int major = 0, minor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return {};
  if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc()) return {};
  return major > 5 || (major == 5 && minor >= 12);
}

}  // namespace

GpuDirect gpudirect_of(const Graph& graph, NodeId gpu, NodeId nic) {
  using State = GpuDirect::State;
  const Node &card = graph[gpu], &port = graph[nic];
  if (!is_nvidia(card) || !card.host.exists()) return {};
  const Node& host = graph[card.host];
  if (fact(host, "peermem") == "loaded") return {State::kOn, "nvidia_peermem is loaded"};
  // dma-buf is the other way: the kernel, the GPU's driver and the NIC's all have to know it.
  const std::string without =
      fmt::format("kernel {}, no module nvidia_peermem",
                  fact(host, "kernel").empty() ? "?" : fact(host, "kernel"));
  if (fact(card, "dma_buf") == "no") return {State::kOff, without + ", no dma-buf of GPUs (CUDA)"};
  if (fact(port, "dma_buf") == "no") return {State::kOff, without + ", no dma-buf of NICs (verbs)"};
  const auto kernel = has_dma_buf(host);
  if (kernel && !*kernel) return {State::kOff, without + "; dma-buf needs 5.12"};
  if (fact(card, "dma_buf") == "yes") return {State::kOn, "the driver offers dma-buf (CUDA)"};
  if (!kernel) return {};
  return {State::kDepends, without};
}

std::vector<NodeId> acs_between(const Machine& machine, NodeId a, NodeId b) {
  std::vector<NodeId> bridges;
  if (machine.near(a, b) != Machine::Near::kSwitch) return bridges;
  const auto &mine = machine.way[a.value], &its = machine.way[b.value];
  for (const auto& [from, to] : {std::pair(&mine, &its), std::pair(&its, &mine)}) {
    for (const NodeId step : *from) {
      // Up to where the ways meet: what is above, their traffic does not pass.
      if (std::find(to->begin(), to->end(), step) != to->end()) break;
      if (fact(machine.graph[step], "acs") == "on") bridges.push_back(step);
    }
  }
  return bridges;
}

std::string translation_of(const Node& device) {
  const std::string& type = fact(device, "iommu_type");  // "DMA", "DMA-FQ"; "identity" passes.
  return type.starts_with("DMA") ? type : std::string();
}

void check_gpudirect_bridges(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  struct Blocked {
    std::string names;
    int pairs = 0;
  };
  std::map<NodeId, Blocked> blocked;  // GPUs that a bridge with ACS keeps from their NIC.
  for (const auto& host : machine.hosts) {
    for (const NodeId gpu : host.gpus) {
      const NodeId nic = machine.nearest_nic(host, gpu);
      if (!nic.exists()) continue;
      for (const NodeId bridge : acs_between(machine, gpu, nic)) {
        auto& [names, pairs] = blocked[bridge];
        if (names.size() < 200) append(names, graph[gpu].name + " and " + graph[nic].name);
        ++pairs;
      }
    }
  }
  for (const auto& [bridge, between] : blocked) {
    findings.push_back(
        {Severity::kWarning, "gpudirect-acs", graph[bridge].name,
         "access control (ACS) is on: traffic between a GPU and its NIC goes up to the processor "
         "and back",
         fmt::format("between {}; acs on (configuration space); a published case loses {:.0f}%",
                     blocked.size() == 1
                         ? between.names
                         : fmt::format("{} GPUs and their NICs at each bridge", between.pairs),
                     100 * kLossWithoutGpuDirect),
         "switch ACS off in the firmware's settings, or with setpci on this bridge, unless virtual "
         "machines need it",
         kLossWithoutGpuDirect});
  }
}

void check_gpudirect_iommu(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const auto& host : machine.hosts) {
    if (!host.node.exists() || host.gpus.empty() || host.nics.empty()) continue;
    int translated = 0, passed = 0;
    std::string type;
    for (const auto* list : {&host.gpus, &host.nics}) {
      for (const NodeId device : *list) {
        const std::string own = translation_of(graph[device]);
        if (!own.empty()) {
          ++translated;
          type = own;
        } else if (!fact(graph[device], "iommu_type").empty()) {
          ++passed;
        }
      }
    }
    const Node& node = graph[host.node];
    if (translated == 0 && passed > 0) continue;
    const std::string& words = fact(node, "iommu");
    const bool said = words.find("iommu=on") != std::string::npos ||
                      words.find("iommu=force") != std::string::npos;
    const bool passes = words.find("iommu=pt") != std::string::npos ||
                        words.find("iommu.passthrough=1") != std::string::npos ||
                        words.find("iommu=off") != std::string::npos;
    const bool groups = number_fact(node, "iommu_groups").value_or(0) > 0;
    if (translated == 0 && (passes || !groups)) continue;
    const bool sure = translated > 0 || said;
    findings.push_back(
        {sure ? Severity::kWarning : Severity::kNote, "gpudirect-iommu", node.name,
         sure ? "the IOMMU translates the addresses of GPUs and NICs: their traffic goes up to the "
                "processor and back"
              : "the IOMMU is in use, and nothing says whether it translates",
         translated > 0
             ? fmt::format("{} GPUs and NICs in groups of type {} (kernel)", translated, type)
             : fmt::format("{} groups; kernel command line: {}", fact(node, "iommu_groups"),
                           words.empty() ? "nothing of it" : words),
         "boot with iommu=pt, or switch the IOMMU off", sure ? kLossWithoutGpuDirect : 0});
  }
}

void check_gpudirect_driver(const Machine& machine, Findings& findings) {
  using State = GpuDirect::State;
  const Graph& graph = machine.graph;
  for (const auto& host : machine.hosts) {
    if (!host.node.exists()) continue;
    // The worst of all GPUs with all RDMA devices, and how many GPUs it concerns.
    GpuDirect worst;
    int concerned = 0;
    for (const NodeId gpu : host.gpus) {
      GpuDirect own;
      for (const NodeId nic : host.nics) {
        if (fact(graph[nic], "guid").empty()) continue;
        const GpuDirect one = gpudirect_of(graph, gpu, nic);
        if (one.state > own.state) own = one;
      }
      if (own.state > worst.state) {
        worst = own;
        concerned = 0;
      }
      concerned += own.state == worst.state ? 1 : 0;
    }
    const std::string& name = graph[host.node].name;
    const std::string evidence =
        fmt::format("{}; {} of {} GPUs", worst.evidence, concerned, host.gpus.size());
    if (worst.state == State::kDepends) {
      findings.push_back({Severity::kNote, "gpudirect-driver", name,
                          "GPUDirect depends on dma-buf here, which only NVIDIA's open kernel "
                          "modules offer",
                          evidence, "modprobe nvidia_peermem, or use the open modules"});
    } else if (worst.state == State::kOff) {
      findings.push_back({Severity::kWarning, "gpudirect-driver", name,
                          "GPUDirect is off: nvidia_peermem is not loaded, and there is no dma-buf",
                          evidence, "modprobe nvidia_peermem", kLossWithoutGpuDirect});
    }
  }
}

void check_gpudirect_far(const Machine& machine, Findings& findings) {
  using Near = Machine::Near;
  const Graph& graph = machine.graph;
  for (const auto& host : machine.hosts) {
    // A NIC whose place is not known may be the near one.
    const bool unknown = std::any_of(host.nics.begin(), host.nics.end(),
                                     [&](NodeId nic) { return !machine.numa_of(nic).exists(); });
    if (host.nics.empty() || unknown) continue;
    std::vector<Near> nearest;
    for (const NodeId gpu : host.gpus) {
      nearest.push_back(machine.near(gpu, machine.nearest_nic(host, gpu)));
    }
    const auto some = [&](Near near) {
      return std::find(nearest.begin(), nearest.end(), near) != nearest.end();
    };
    // Where there are NICs for all, a GPU without one of its own is wired or counted wrongly.
    const bool enough = host.nics.size() >= host.gpus.size();
    const bool some_switch = some(Near::kSwitch), some_numa = some_switch || some(Near::kNuma);
    for (std::size_t i = 0; i < nearest.size(); ++i) {
      const Node& gpu = graph[host.gpus[i]];
      const std::string evidence =
          fmt::format("the host has {} GPUs and {} NICs", host.gpus.size(), host.nics.size());
      if (nearest[i] == Near::kFar) {
        const bool odd = enough && some_numa;
        findings.push_back({odd ? Severity::kWarning : Severity::kNote, "nic-on-other-numa",
                            gpu.name, "every NIC is on another NUMA node than this GPU (SYS)",
                            evidence,
                            "move a NIC or the GPU to another slot, or leave this GPU's "
                            "network traffic to others",
                            odd ? kLossWithoutGpuDirect : 0});
      } else if (nearest[i] == Near::kNuma && some_switch) {
        findings.push_back({enough ? Severity::kWarning : Severity::kNote, "gpudirect-far",
                            gpu.name,
                            "no NIC is under this GPU's PCI Express switch (PHB), and "
                            "other GPUs have one there",
                            evidence,
                            "move a NIC to this switch, or leave this GPU's network "
                            "traffic to others",
                            enough ? kLossWithoutGpuDirect : 0});
      }
    }
  }
}

}  // namespace tutti::topology
