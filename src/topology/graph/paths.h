// File: topology/graph/paths.h: the best way from one node to another, and what limits it.
//
// A path belongs to a class, named as NCCL names them, best first: what matters is what it passes,
// for a path through a CPU is worse than one past it whatever the links say. Among the paths of the
// best class the one with the widest bottleneck counts, among those the one with the fewest links,
// and among those the first in the order of the graph, so that every rank finds the same.
//
// Paths do not pass through GPUs, but for one that relays: to another GPU over NVLink on both sides
// (NVB), or from NVLink to its own NIC (PXN).
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

enum class PathClass : std::uint8_t {
  kLocal,     // LOC: the node itself.
  kNvlink,    // NVL: NVLink or xGMI, with nothing but NVSwitches between.
  kRelayed,   // NVB: the same through one GPU.
  kC2c,       // C2C: to the CPU over NVLink-C2C.
  kSwitch,    // PIX: at most one PCI Express switch.
  kSwitches,  // PXB: several, and no CPU.
  kC2cPcie,   // P2C: over NVLink-C2C to the CPU, then down PCI Express.
  kProxy,     // PXN: over NVLink to a GPU and on to its NIC.
  kHost,      // PHB: through a CPU.
  kSystem,    // SYS: from one NUMA node to another.
  kNetwork,   // NET
  kNone,      // DIS
};

/// "PIX", as in nvidia-smi and NCCL.
std::string_view name_of(PathClass type);
/// "at most one PCI Express switch between": for people.
std::string_view meaning_of(PathClass type);

struct Path {
  PathClass type = PathClass::kNone;
  NodeId from, to;
  std::vector<Adjacency::Edge> edges;  // In order; empty for LOC and DIS.
  std::size_t bottleneck = 0;          // The first of the narrowest, in `edges`.
  double gigabytes_per_second = 0;     // The bottleneck's, of all ways together; 0: not known.
  int ways = 1;           // NVL: links and NVSwitches side by side, of which `edges` shows one.
  double latency_us = 0;  // Sum over the links that say one.
};

struct PathOptions {
  bool relays = true;                     // Whether NVB and PXN count.
  PathClass worst = PathClass::kNetwork;  // Classes beyond this are not looked for.
};

/// Whether a path of class PHB leaves a NUMA node's PCI by another host bridge than it came by:
/// what nvidia-smi calls NODE. Bridges are told apart by root bus, or by the fact "host_bridge".
bool crosses_bridges(const Graph& graph, const Path& path);
/// "NODE" for those, else the name of the class.
std::string_view name_of(const Graph& graph, const Path& path);
std::string_view meaning_of(const Graph& graph, const Path& path);

/// The best path; type kNone if there is none. Linear in the graph, for each class that is tried.
Path best_path(const Graph& graph, const Adjacency& adjacency, NodeId from, NodeId to,
               const PathOptions& options = {});

/// The same from one node to each of several, all different; for all together as many searches, one
/// more for each width of a class.
std::vector<Path> best_paths(const Graph& graph, const Adjacency& adjacency, NodeId from,
                             std::span<const NodeId> to, const PathOptions& options = {});

}  // namespace tutti::topology
