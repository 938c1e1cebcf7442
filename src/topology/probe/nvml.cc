// File: topology/probe/nvml.cc: what NVML knows, put into the graph of sysfs.
#include <fmt/format.h>

#include <algorithm>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

class NvmlProbe {
 public:
  explicit NvmlProbe(Probe& probe) : probe_(probe), facts_(*probe.answers.nvml) {}

  void run() {
    for (const NvmlGpu& gpu : facts_.gpus) {
      nodes_.push_back(probe_.gpu_at(gpu.bus, gpu.index, "NVML"));
    }
    for (std::size_t i = 0; i < facts_.gpus.size(); ++i) {
      describe(facts_.gpus[i], nodes_[i]);
      add_rates(facts_.gpus[i], nodes_[i]);
      count_links(facts_.gpus[i], nodes_[i]);
      add_c2c(facts_.gpus[i], nodes_[i]);
      add_p2p(facts_.gpus[i], nodes_[i]);
    }
    join();
  }

 private:
  void describe(const NvmlGpu& gpu, NodeId node) {
    probe_.fact(node, "model", gpu.name);
    probe_.fact(node, "uuid", gpu.uuid);
    if (gpu.sm > 0) probe_.fact(node, "sm", std::to_string(gpu.sm));
    probe_.fact(node, "fabric_uuid", gpu.fabric_uuid);
    if (!gpu.fabric_uuid.empty()) {
      probe_.fact(node, "fabric_clique", std::to_string(gpu.fabric_clique));
      probe_.fact(node, "fabric_state", std::to_string(gpu.fabric_state));
    }
    sm_[node] = gpu.sm;
  }

  // Rates that sysfs does not tell of the GPU's own PCI Express link.
  void add_rates(const NvmlGpu& gpu, NodeId node) {
    for (Link& link : probe_.graph().links) {
      if (link.kind != LinkKind::kPcie || link.b != node || !link.pcie) continue;
      if (!link.pcie->current.known()) link.pcie->current = gpu.current;
      if (link.pcie->maximum.known() || !gpu.maximum.known()) continue;
      link.pcie->maximum = gpu.maximum;
      link.forward = link.backward = {pcie_bandwidth(gpu.maximum), Origin::kReportedMaximum};
    }
  }

  void count_links(const NvmlGpu& gpu, NodeId node) {
    int active = 0, hidden = 0;
    for (const NvmlLink& link : gpu.links) {
      if (!link.active) continue;
      ++active;
      const auto known = probe_.by_bus.find(link.bus);
      NodeId far;
      if (known != probe_.by_bus.end() && known->second != node) {
        const NodeKind kind = probe_.graph()[known->second].kind;
        if (kind == NodeKind::kGpu || kind == NodeKind::kNvSwitch) far = known->second;
      }
      if (!far.exists() && link.remote == NvmlLink::Remote::kSwitch) far = hidden_switch();
      // POWER's bridge: the far end is the processor that the GPU is next to.
      if (!far.exists() && link.remote == NvmlLink::Remote::kCpu)
        far = numa_above(probe_.out.graph, node, false);
      if (far.exists()) {
        ++counted_[{node, far}];
      } else {
        ++hidden;
      }
    }
    if (!gpu.links.empty()) {
      probe_.fact(node, "nvlinks", fmt::format("{} of {} active", active, gpu.links.size()));
    }
    if (hidden > 0) {
      probe_.find(Severity::kWarning, "nvlink-peer-hidden", probe_.graph()[node].name,
                  fmt::format("{} NVLinks lead to what is hidden here; they are left out", hidden),
                  "give the container all GPUs");
    }
  }

  void add_c2c(const NvmlGpu& gpu, NodeId node) {
    if (gpu.c2c_count <= 0) return;
    const NodeId at = numa_above(probe_.out.graph, node, false);
    if (!at.exists()) return;
    Quantity gbs;
    if (gpu.c2c_gbs > 0) gbs = {gpu.c2c_gbs * gpu.c2c_count, Origin::kReportedMaximum};
    probe_.graph().join(LinkKind::kC2c, at, node, gbs).count = gpu.c2c_count;
  }

  // The fact "no_p2p" names the GPUs whose memory can't be read from here, with NVML's reason.
  void add_p2p(const NvmlGpu& gpu, NodeId node) {
    static constexpr const char* kReasons[] = {"",       "chipset",       "gpu",    "topology",
                                               "regkey", "not-supported", "unknown"};
    std::string refused;
    for (std::size_t peer = 0; peer < gpu.p2p.size() && peer < nodes_.size(); ++peer) {
      const int status = gpu.p2p[peer];
      if (status == 0 || nodes_[peer] == node) continue;
      append(refused,
             fmt::format("gpu{}:{}", facts_.gpus[peer].index, kReasons[std::clamp(status, 0, 6)]),
             " ");
    }
    probe_.fact(node, "no_p2p", refused);
  }

  void join() {
    bool assumed = false;
    for (const auto& [ends, count] : counted_) {
      const auto [near, far] = ends;
      const auto other = counted_.find({far, near});
      if (other != counted_.end() && far < near) continue;  // Both say it: once is enough.
      const Quantity each = nvlink_bandwidth(sm_[near]);
      assumed = assumed || each.origin == Origin::kAssumed;
      // Switches and processors do not speak for themselves; where a GPU says otherwise than its
      // peer, each direction has what its sender says.
      const bool silent = probe_.graph()[far].kind != NodeKind::kGpu;
      const int back = silent ? count : other == counted_.end() ? 0 : other->second;
      probe_.graph().add({LinkKind::kNvlink,
                          near,
                          far,
                          std::max(count, back),
                          {each.value * count, each.origin},
                          {each.value * back, each.origin}});
    }
    if (assumed) {
      probe_.find(Severity::kNote, "nvlink-assumed", "host0",
                  "the bandwidth of an NVLink of these GPUs is in no table; 20 GB/s is assumed");
    }
    const auto gpus = std::count_if(facts_.gpus.begin(), facts_.gpus.end(),
                                    [](const NvmlGpu& gpu) { return gpu.links.empty(); });
    if (gpus > 0 && static_cast<std::size_t>(gpus) < facts_.gpus.size()) {
      probe_.graph().notes.push_back(fmt::format("NVML reports no NVLinks for {} GPUs", gpus));
    }
  }

  // One node for all switches that can't be told apart.
  NodeId hidden_switch() {
    if (!hidden_switch_.exists()) {
      const int next = static_cast<int>(probe_.graph().all(NodeKind::kNvSwitch).size());
      hidden_switch_ = probe_.add(NodeKind::kNvSwitch, fmt::format("nvswitch{}", next));
    }
    return hidden_switch_;
  }

  Probe& probe_;
  const NvmlFacts& facts_;
  std::vector<NodeId> nodes_;  // Nodes of facts_.gpus.
  std::map<std::pair<NodeId, NodeId>, int>
      counted_;  // Links by (the node that reports it, far end).
  std::map<NodeId, int> sm_;
  NodeId hidden_switch_;
};

}  // namespace

void probe_nvml(Probe& probe) {
  if (probe.answers.nvml) {
    NvmlProbe(probe).run();
    return;
  }
  const auto gpus = probe.graph().all(NodeKind::kGpu);
  const auto nvidia = std::count_if(gpus.begin(), gpus.end(), [&](NodeId gpu) {
    return fact(probe.graph()[gpu], "vendor") == "0x10de";
  });
  if (nvidia > 0) {
    probe.find(Severity::kWarning, "nvlink-hidden", "host0",
               fmt::format("{} of NVIDIA's GPUs, and no NVML to say how NVLink joins them", nvidia),
               "run where libnvidia-ml.so.1 is, or import nvidia-smi's or NCCL's output");
  }
}

}  // namespace tutti::topology
