// File: topology/checks/parts.h: what checks share. Internal to checks/*.cc.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "topology/graph/finding.h"

namespace tutti::topology {

/// A graph with what every check asks about it, built once: the tree of PCI Express (and C2C)
/// below the NUMA nodes, and the parts of each host.
struct Machine {
  explicit Machine(const Graph& graph);

  struct Host {
    NodeId node;                           // None: of parts that are in no host.
    std::vector<NodeId> gpus, nics, numa;  // No bridges, veth or bonds among the NICs.
  };
  /// How near two devices are: by the deepest place where their ways up meet.
  enum class Near { kSwitch, kNuma, kFar, kUnknown };

  const Graph& graph;
  std::vector<NodeId> parent;            // Towards the NUMA node; none for it and what has none.
  std::vector<std::uint32_t> up;         // The link to the parent, in Graph::links.
  std::vector<std::vector<NodeId>> way;  // From a GPU, NIC or card up to its NUMA node, with both.
  std::vector<Host> hosts;

  /// Whether a NIC is a device: on PCI Express, or an RDMA device that the kernel gave a GUID.
  bool is_device(NodeId nic) const;
  /// The NUMA node above; none if not known.
  NodeId numa_of(NodeId node) const;
  Near near(NodeId a, NodeId b) const;
  /// The NIC of the same host that is nearest, the first of equals; none without NICs.
  NodeId nearest_nic(const Host& host, NodeId gpu) const;
  /// The PCI Express link above, past internal links; nullptr if there is none.
  const Link* pcie_above(NodeId node) const;
};

/// Whether a GPU's memory and an RDMA device reach each other, by what driver and kernel say.
struct GpuDirect {
  enum class State { kUnknown, kOn, kDepends, kOff };  // Better first.
  State state = State::kUnknown;
  std::string evidence;
};
GpuDirect gpudirect_of(const Graph& graph, NodeId gpu, NodeId nic);
/// Bridges with ACS between two devices that meet below a processor.
std::vector<NodeId> acs_between(const Machine& machine, NodeId a, NodeId b);
/// Whether the IOMMU translates a device's addresses: its group's type; "" if not, or not known.
std::string translation_of(const Node& device);

/// "nic 0x15b3 0x1021": what parts have in common that should behave alike; "" if not known.
std::string likeness(const Node& node);
/// False where a port says that it is not up; true where it says nothing.
bool is_up(const Node& nic);
/// "16 GT/s x16".
std::string text_of(const PcieRate& rate);
/// 1 - own/whole, within 0 and 1; 0 where the whole is not known.
double loss_of(double own, double whole);
/// Worst first, see check.h.
void rank(Findings& findings);
/// Findings that say the same of several of these places, as one at the first of them.
void join_alike(const std::set<std::string>& places, Findings& findings);
/// Names of nodes in short, in an order of their own: "host0/gpu0-gpu3, gpu6; host1/gpu2".
std::string place_of(const std::vector<std::string>& names);

/// What GPU traffic through host memory keeps of GPUDirect's bandwidth is 33 of 93 GB/s in a
/// published case (NCCL issue 1412): an example, not a measurement of this machine.
inline constexpr double kLossWithoutGpuDirect = 0.65;

#define TUTTI_CHECK_OF(name, ...) void name(const Machine& machine, Findings& findings);
#include "topology/checks/checks.def"
#undef TUTTI_CHECK_OF

}  // namespace tutti::topology
