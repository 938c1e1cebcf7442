// File: topology/probe/cuda.cc: what CUDA knows of GPUs, as facts of their nodes.
#include <fmt/format.h>

#include "topology/graph/words.h"
#include "topology/probe/parts.h"

namespace tutti::topology {
namespace {

// "gpu1 gpu4": the peers for which `values`, in CUDA's order, say 0.
std::string refused(const Probe& probe, const std::vector<NodeId>& nodes, NodeId self,
                    const std::vector<int>& values) {
  std::string list;
  for (std::size_t i = 0; i < values.size() && i < nodes.size(); ++i) {
    if (values[i] != 0 || nodes[i] == self) continue;
    const std::string& name = probe.out.graph[nodes[i]].name;
    append(list, name.substr(name.find('/') + 1), " ");
  }
  return list;
}

}  // namespace

void probe_cuda(Probe& probe) {
  if (!probe.answers.cuda) {
    // There is a driver, which tells NVML of GPUs, and programs can't use them.
    const std::string& why = probe.answers.cuda.error().what;
    if (probe.answers.nvml && why.find("refuses") != std::string::npos) {
      probe.find(Severity::kError, "cuda-refused", "host0", why,
                 "systemctl status nvidia-fabricmanager, nvidia-smi, dmesg");
    }
    return;
  }
  const std::vector<CudaGpu>& gpus = probe.answers.cuda->gpus;
  std::vector<NodeId> nodes;
  for (const CudaGpu& gpu : gpus) nodes.push_back(probe.gpu_at(gpu.bus, gpu.index, "CUDA"));
  const auto say = [&](NodeId node, const char* key, const std::optional<bool>& value) {
    if (value) probe.fact(node, key, *value ? "yes" : "no");
  };
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const CudaGpu& gpu = gpus[i];
    probe.fact(nodes[i], "cuda_index", std::to_string(gpu.index));
    if (gpu.sm > 0) probe.fact(nodes[i], "sm", std::to_string(gpu.sm));
    say(nodes[i], "multicast", gpu.multicast);
    say(nodes[i], "fabric_handles", gpu.fabric_handles);
    say(nodes[i], "gpudirect_rdma", gpu.gpudirect_rdma);
    say(nodes[i], "dma_buf", gpu.dma_buf);
    probe.fact(nodes[i], "no_peer_access", refused(probe, nodes, nodes[i], gpu.access));
    probe.fact(nodes[i], "no_peer_atomics", refused(probe, nodes, nodes[i], gpu.atomics));
  }
  std::size_t visible = 0, nvidia = 0;
  for (const NodeId gpu : probe.graph().all(NodeKind::kGpu)) {
    const Node& node = probe.graph()[gpu];
    visible += node.facts.count("cuda_index");
    nvidia += node.facts.count("uuid") != 0 || fact(node, "vendor") == "0x10de" ? 1 : 0;
  }
  if (visible < nvidia) {
    probe.graph().notes.push_back(fmt::format(
        "CUDA shows {} of {} GPUs here: CUDA_VISIBLE_DEVICES, or a container", visible, nvidia));
  }
}

}  // namespace tutti::topology
