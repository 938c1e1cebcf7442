// File: topology/bound_network.h: the integer network that bounds are computed on.
#pragma once
#include <span>
#include <vector>

#include "topology/bound.h"

namespace tutti::topology {

/// A direction of a link: MB/s, or kUnlimited.
struct Arc {
  std::uint32_t from, to;
  std::int64_t mbps;
  LinkKind kind;
};
inline constexpr std::int64_t kUnlimited = -1;

struct Network {
  std::size_t nodes = 0;
  std::vector<Arc> arcs;  // None of 0 MB/s.
  std::vector<NodeId> endpoints;
  std::vector<bool> is_endpoint;  // By node.
  Findings findings;
};

/// Checks everything that bound() promises to check. `reversed`: all arcs turned round, which makes
/// a reduce-scatter an all-gather.
Result<Network> make_network(const Graph& graph, std::span<const NodeId> endpoints, bool reversed);

/// MB/s that leave the nodes for which `inside` holds, or kUnlimited.
std::int64_t exit_mbps(const Network& network, const std::vector<bool>& inside);

/// Endpoints, without those that are certainly alike to one that is there (bound_network.cc says
/// how). The host of `apart`, if it exists, is taken as alike to no other.
std::vector<NodeId> representatives(const Graph& graph, const Network& network, NodeId apart);

/// The nodes of each host that has endpoints; endpoints without a host are parts of their own.
std::vector<std::vector<bool>> host_parts(const Graph& graph, const Network& network);

/// The cut with its words. `leave` is the verb: "leave", or "are entered" where arcs are reversed.
Cut describe(const Graph& graph, const Network& network, const std::vector<bool>& inside,
             std::string_view verb);

}  // namespace tutti::topology
