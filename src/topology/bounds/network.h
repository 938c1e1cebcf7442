// File: topology/bounds/network.h: the integer network that bounds are computed on.
#pragma once
#include <span>
#include <vector>

#include "topology/bounds/bound.h"

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
  bool all_known = true;          // No arc is unlimited because nobody knows its width.
  Findings findings;
};

/// Checks everything that bound() promises to check; leaves out what bound() does. `reversed`: all
/// arcs turned round, which makes a reduce-scatter an all-gather.
Result<Network> make_network(const Graph& graph, std::span<const NodeId> endpoints, bool reversed);

/// MB/s that leave the nodes for which `inside` holds, or kUnlimited.
std::int64_t exit_mbps(const Network& network, const std::vector<bool>& inside);

/// Endpoints, without those that are certainly alike to one that is there (network.cc says
/// how). The host of `apart`, if it exists, is taken as alike to no other, and so are the hosts
/// that hang on the same switches.
std::vector<NodeId> representatives(const Graph& graph, const Network& network, NodeId apart);

/// Nodes in parts that don't overlap.
struct Parts {
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> of;  // By node.
  std::size_t count = 0;
};
/// The nodes of each host that has endpoints; endpoints without a host are parts of their own.
Parts host_parts(const Graph& graph, const Network& network);
/// Each endpoint by itself.
Parts single_parts(const Network& network);
/// The nodes of one of them.
std::vector<bool> inside(const Parts& parts, std::size_t part);
/// By part: MB/s that leave it (`entering`: that enter), or kUnlimited.
std::vector<std::int64_t> exits_mbps(const Network& network, const Parts& parts, bool entering);

/// The cut with its words. `leave` is the verb: "leave", or "are entered" where arcs are reversed.
Cut describe(const Graph& graph, const Network& network, const std::vector<bool>& inside,
             std::string_view verb);

}  // namespace tutti::topology
