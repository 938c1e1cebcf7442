// File: topology/probe/parts.h: the probes that probe.cc runs one after the other, and what they
// hand to one another. Internal to the probe.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "topology/graph/finding.h"
#include "topology/probe/sources/cuda.h"
#include "topology/probe/sources/file_tree.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/verbs.h"

namespace tutti::topology {

struct ProbeOptions;  // probe.h

/// What the libraries that a probe may ask have answered, or why they have not.
struct Answers {
  Result<NvmlFacts> nvml;
  Result<CudaFacts> cuda;
  Result<VerbsFacts> verbs;
};

struct Probe {
  const FileTree& files;
  const Answers& answers;
  Imported out{};
  NodeId host{};
  std::map<int, NodeId> numa{};            // By the kernel's number.
  std::map<std::string, NodeId> by_bus{};  // PCI devices that are nodes.

  Graph& graph() { return out.graph; }
  /// Adds a node of the host. The name is the part behind "host0/".
  NodeId add(NodeKind kind, const std::string& name, int index = -1);
  /// Sets a fact where there is something to say; what can't be printed becomes '?'.
  void fact(NodeId node, const std::string& key, std::string value);
  /// The node of a GPU that a library (`who`) knows by its bus address; where sysfs does not show
  /// it, it is added to the NUMA node that CUDA says or to the first, and that is a finding.
  NodeId gpu_at(const std::string& bus, int index, std::string_view who);
  /// The NUMA node that CUDA says a GPU is next to; none if it does not.
  NodeId numa_by_cuda(const std::string& bus) const;
  void find(Severity severity, std::string code, std::string where, std::string what,
            std::string remedy = {});
};

/// A port of a network device as /sys/class has it.
struct Port {
  std::string name;                          // "mlx5_0", "mlx4_0:2", "eth0".
  std::map<std::string, std::string> facts;  // As the node gets them.
  int mbps = 0;                              // 0: not known.
  bool active = false;
};

// Where a tree has what each library answered.
inline constexpr const char* kNvmlFile = "/tutti/nvml.json";
inline constexpr const char* kCudaFile = "/tutti/cuda.json";
inline constexpr const char* kVerbsFile = "/tutti/verbs.json";
/// The answer of a library that was not asked.
Error not_asked(std::string_view what);

/// All of the below, one after the other.
Imported probe_parts(const FileTree& files, const Answers& answers);
/// What the libraries say, where root is this machine.
Answers ask_libraries(const ProbeOptions& options);
void probe_host(Probe& probe);  // Name, kernel, limits, IOMMU.
void probe_numa(Probe& probe);  // NUMA nodes, packages, sockets' links.
/// Ports by the PCI address of their function; "": of RDMA devices made of software.
std::map<std::string, std::vector<Port>> probe_ports(Probe& probe);
/// GPUs, NICs and NVSwitches with all bridges above them.
void probe_pci(Probe& probe, const std::map<std::string, std::vector<Port>>& ports);
/// PCI addresses of AMD's GPUs in the order of their driver.
std::vector<std::string> kfd_gpus(const FileTree& files);
void probe_kfd(Probe& probe);   // xGMI.
void probe_nvml(Probe& probe);  // NVLink, C2C, what sysfs does not know of GPUs.
void probe_cuda(Probe& probe);  // Peer access, multicast, GPUDirect. After probe_nvml.

}  // namespace tutti::topology
