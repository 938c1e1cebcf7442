// File: sweep/bound.h: the times that no library can beat on the machine of a sweep, from its
// topology.
//
// The host is a graph: cores that reach memory, and the links between its NUMA nodes. There are two
// bounds, and the larger one counts.
//   memory  Every input byte is read once and every output byte written once. All ranks together
//           do that at the rate of plain copies that all of them make at once, measured in the same
//           run, with buffers of the same size; past the cache with streaming stores.
//   links   Bytes that have to cross from NUMA node to NUMA node, at the bandwidths that the probe
//   found:
//           topology/bounds/bound.h, with the ranks as endpoints. Only if every rank is bound to
//           one CPU, as a rank that may run anywhere is on no NUMA node; and only a link with a
//           known bandwidth is a limit.  Both hold for any library; neither counts latency, so
//           small messages are far from them.
#pragma once
#include <span>
#include <string>

#include "perf/sweep/check.h"
#include "topology/graph/graph.h"
#include "tutti/communicator.h"

namespace tutti::perf {

/// The bound that the links between NUMA nodes set; nothing is measured for it.
struct LinksBound {
  double us_per_byte = 0;  // 0: none.
  std::string words;       // The cut behind it; or why there is none.
};

/// For a collective of ranks on these NUMA nodes (by Node::index; -1: not on one) of the host's
/// graph. Collectives of which no bound is known (topology::Pattern) have none.
LinksBound links_bound(const topology::Graph& host, Collective collective,
                       std::span<const int> numa_of_rank, int root);

/// The same for the ranks of a communicator, on the host that rank 0 probes: every rank gets the
/// same number, rank 0 the words. Collective.
Result<LinksBound> links_bound(Communicator& comm, Collective collective, int root);

/// Bytes that have to be read and written, all ranks together.
double memory_traffic(const Shape& shape);

}  // namespace tutti::perf
