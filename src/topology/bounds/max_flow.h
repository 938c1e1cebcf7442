// File: topology/bounds/max_flow.h: the largest flow between two nodes of a directed graph with
// integer capacities, and a smallest cut.
//
// Dinic's method (1970): shortest augmenting paths, all of one length at a time. Topologies are
// shallow (a dozen hops), so a handful of phases do. No recursion: graphs come from files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace tutti::topology {

class MaxFlow {
 public:
  explicit MaxFlow(std::size_t nodes) : edges_(nodes) {}
  /// An edge of capacity >= 0. Returns its number, for set_capacity. The sum of the capacities that
  /// leave a source must fit 64 bits: the caller's duty (bound.cc checks its products).
  std::size_t add_edge(std::uint32_t from, std::uint32_t to, std::int64_t capacity);
  void set_capacity(std::size_t edge, std::int64_t capacity) { capacities_[edge] = capacity; }
  /// The largest flow; earlier flows are forgotten. The two nodes differ. A caller that only wants
  /// to know whether the flow reaches some amount says so: then it may end there, or anywhere
  /// above.
  std::int64_t run(std::uint32_t source, std::uint32_t sink,
                   std::int64_t enough = std::numeric_limits<std::int64_t>::max());
  /// After run(), if it was not ended by `enough`: whether a node is on the source's side of a
  /// smallest cut.
  bool on_source_side(std::uint32_t node) const { return levels_[node] >= 0; }
  /// The same of the first `nodes` nodes.
  std::vector<bool> source_side(std::size_t nodes) const {
    std::vector<bool> inside(nodes);
    for (std::uint32_t n = 0; n < nodes; ++n) inside[n] = on_source_side(n);
    return inside;
  }

 private:
  struct Half {
    std::uint32_t to;
    std::int64_t residual;
  };
  bool find_levels(std::uint32_t source, std::uint32_t sink);
  std::int64_t augment(std::uint32_t source, std::uint32_t sink);

  std::vector<std::vector<std::uint32_t>> edges_;  // By node: places in halves_.
  std::vector<Half> halves_;                       // Edge e and its reverse: 2e and 2e + 1.
  std::vector<std::int64_t> capacities_;
  std::vector<int> levels_;
  std::vector<std::size_t> next_;  // By node: the first edge that may still lead to the sink.
  std::vector<std::uint32_t> queue_, path_;
};

}  // namespace tutti::topology
