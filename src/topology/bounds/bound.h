// File: topology/bounds/bound.h: how fast a collective can be at best on a machine, exactly, and
// what holds it up.
//
// The model: every link direction carries so many MB a second (its bandwidth, rounded to the next
// integer); latency is free; switches, bridges, NICs and all GPUs forward; only endpoints reduce. A
// link whose bandwidth nobody knows is taken as unlimited, which keeps a bound a bound: no plan can
// be faster. Endpoints of one host that reach each other inside it have no network: nobody sends to
// a neighbour out by one NIC and in by another. The bound of an all-gather is reached by packed
// trees (Edmonds 1973; for switches Bang-Jensen, Frank and Jackson 1995), so it is the optimum of
// this model.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/graph/finding.h"
#include "topology/graph/rational.h"
#include "tutti/result.h"

namespace tutti::topology {

/// What is moved. What M, the bytes of a bound, means: all-gather and gather, the whole result;
/// scatter, all that the root has; reduce-scatter, all-reduce, reduce and scans, the whole vector
/// of one endpoint; broadcast, the message; all-to-all, what one endpoint sends, its own share
/// included.
enum class Pattern : std::uint8_t {
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kScan,
  kAllToAll
};

/// A set of nodes, and how fast data can leave it. For reduce-scatter, reduce and scatter: how fast
/// data can enter it.
struct Cut {
  std::vector<NodeId> inside;  // In the order of the graph.
  std::int64_t exit_mbps = 0;  // MB/s of all links that leave (enter) the set, together.
  std::string words;           // "8 of 16 endpoints (host0) leave through 8 port links: 400 GB/s".
};

struct Bound {
  /// Time of M megabytes: at least M times this, in seconds.
  Rational seconds_per_mb;
  /// The largest M/T, in GB/s.
  double gigabytes_per_second() const { return 1e-3 / seconds_per_mb.value(); }
  /// Whether this is the best bound that the model has. False for all-reduce, scans and all-to-all,
  /// whose bounds hold but may be too low, and where a bandwidth is not known.
  bool exact = false;
  /// The set that proves the bound. An all-reduce's proof may take several: this is one of them
  /// (all_reduce in bound.cc).
  Cut cut;
  Findings findings;  // Unknown bandwidths that were taken as unlimited.
};

struct BoundOptions {
  // Indices into the endpoints: `root` is the root or the first rank of a scan, `last` the last
  // rank of a scan.
  std::size_t root = 0, last = 0;
  bool use_symmetry = true;  // Off: one flow an endpoint, for tests.
};

/// The lower bound of a collective over these endpoints: at least 2, all different, and at most
/// 4,096, or 16,384 where symmetry leaves at most 256 that are unlike.
/// Error: fewer, repeated or missing ones, links of more than 1e9 MB/s, endpoints that can't reach
/// each other, or a machine of which no bandwidth is known that would bound anything.
Result<Bound> bound(const Graph& graph, Pattern pattern, std::span<const NodeId> endpoints,
                    const BoundOptions& options = {});

/// GPUs of a machine, or its NUMA nodes if it has none.
std::vector<NodeId> default_endpoints(const Graph& graph);

}  // namespace tutti::topology
