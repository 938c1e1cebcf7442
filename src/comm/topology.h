// File: comm/topology.h: which graph of the hosts the ranks of a communicator choose plans by.
//
// Rank 0 looks: for the file of the setting `topology`, or, on a host with several NUMA nodes, at
// the host itself. What it found goes to all ranks, so all have the same graph, or the same reason
// why not. Every rank finds the NUMA node of every rank by what ranks told when they met: the name
// of their host and the CPUs that they may run on. Parts of a communicator have the graph of the
// whole.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/exchange_over.h"
#include "topology/graph/graph.h"
#include "transport/transport.h"
#include "tutti/settings.h"

namespace tutti {

/// A graph, or why there is none. `graph` lives as long as somebody has it.
struct HostTopology {
  std::shared_ptr<const topology::Graph> graph;
  std::string source;   // "topology of cluster.topo", "topology of node1 (probe)".
  std::string why_not;  // For people; empty: there is a graph, or nobody looked.
};

/// Whether rank 0 has something to tell the others of. kProbed concerns ranks of one host alone.
enum class TopologySource : std::uint32_t { kNone, kFile, kProbed };
TopologySource topology_source(const Settings& settings, int rank_count);

/// What a file of the setting says.
struct TopologyFile {
  topology::Graph graph;
  /// It is NCCL's XML of one host, which leaves to the machine what it does not say
  /// (topology/nccl/complete.h). The text form says all.
  bool partial = false;
};
/// The text form or NCCL's XML from the file of the setting, at most kMostTopologyBytes.
/// kInvalidArgument, in one line that begins with the setting, if it can't be read, is of another
/// form, or is of no machine.
Result<TopologyFile> read_topology_file(const std::string& path);
inline constexpr std::size_t kMostTopologyBytes = std::size_t{512} << 10;

/// Rank 0 tells, the others hear. kInvalidArgument on all ranks if a file can't be read.
/// Collective.
Result<HostTopology> meet_topology(TopologySource source, const Settings& settings, Rank me,
                                   const Exchange& exchange);

/// The host of a graph that is the one of this name; where the graph names none of its hosts (fact
/// "hostname") and has as many as ranks are on, `count`, the one at this place. kUnsupported, in
/// words for people: there is no such host, or several.
Result<topology::NodeId> find_host(const topology::Graph& graph, const std::string& name,
                                   std::size_t place, std::size_t count);
std::string host_name(const Peer& peer);

/// The NUMA node of each rank; kUnsupported, in words for people, where the graph does not say: it
/// lacks a host, or a rank may run on CPUs of several nodes. A graph of one host is of all ranks'
/// host, whatever its name.
Result<std::vector<topology::NodeId>> find_places(const topology::Graph& graph,
                                                  std::span<const Peer> peers);

}  // namespace tutti
