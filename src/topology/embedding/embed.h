// File: topology/embedding/embed.h: rings and trees laid over a machine, and how fast they gather.
//
// The model is that of bound.h: link directions with bandwidths, no latency. A hop from one
// endpoint to another is a route, a unit flow over link directions: where ways lie side by side
// (NVSwitches, spines) a hop uses all of them by shares. A lane says, for every endpoint as the
// root of its block, along which tree of hops the block reaches all others: Lane::source(root,
// place) is the parent. A reduce-scatter is the trees reversed. There is one kind of lane in two
// notations, for a table of N * N parents is too long for large N:
//
//   ring    every tree is the path along one order; the parent is the previous one.
//   forest  places are grouped (hosts). A block enters each foreign group once, at an endpoint that
//           depends on the root (`entries`), and is spread in a group along a tree that depends
//           only on where it entered (`spread`). With a single group that is N trees of any form.
//
// A lane of weight w of a sum W moves the share w/W of every message, and brings each endpoint w
// GB/s: a hop with the blocks of q roots carries w * q/(N-1), a ring's hop w. So lanes whose loads
// fit the links gather W * N/(N-1) GB/s.
//
// Methods, the simplest that is good enough wins: rings (rotations of one order for what hangs on
// switches or on a tree; packed rings for up to 16 endpoints, rings.h; several hosts are
// joined rail by rail, groups.h). A ring carries all data over each of its hops, but a bound
// needs only what is missing behind a cut: where rings reach less than 95 % of it, forests are
// tried (forests.h), at last packed ones that are the optimum (trees.h).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/bounds/bound.h"

namespace tutti::topology {

/// The share of a hop that crosses a link direction: (0, 1].
struct EdgeUse {
  std::uint32_t link = 0;  // In Graph::links.
  bool forward = true;     // From the link's a to its b.
  double share = 1;
};
/// A hop: what leaves one endpoint arrives, whole, at another.
using Route = std::vector<EdgeUse>;

/// How an endpoint gets a block. Endpoints are given as places in Lane::order.
struct Source {
  static constexpr std::uint32_t kNone = 0xffffffff;
  std::uint32_t from = kNone;  // None: of the root itself.
  std::uint32_t hop = 0;       // In Embedding::routes.
  friend bool operator==(const Source&, const Source&) = default;
};

struct Lane {
  std::vector<NodeId> order;        // All endpoints. In a ring, the last one's next is the first.
  std::vector<std::uint32_t> hops;  // In a ring: hops[i], from order[i] to its next. Else empty.
  double gigabytes_per_second = 0;  // The weight. All lanes at once fit the links.

  // For a forest. Group g is the places from starts[g] to starts[g + 1]; so one more than groups.
  std::vector<std::uint32_t> starts;
  struct Entry {
    std::uint32_t at = 0;  // The place where the block enters.
    Source source;         // In another group.
  };
  /// entries[root * groups() + g]; of the root's own group { root, none }.
  std::vector<Entry> entries;
  /// spread[at * width() + member]: how the member (counted from the start of its group) gets what
  /// entered its group at `at`; from the same group, none of `at` itself and past a group's end.
  std::vector<Source> spread;

  bool is_ring() const { return starts.empty(); }
  std::size_t groups() const { return starts.empty() ? 1 : starts.size() - 1; }
  /// How the endpoint at `place` gets the block of the one at `root`.
  Source source(std::size_t root, std::size_t place) const;
  /// Hops from a root to the endpoint that is farthest from it, over all roots.
  std::size_t depth() const;

  std::size_t group_of(std::size_t place) const;
  std::size_t width() const { return spread.size() / order.size(); }  // The largest group's.
};

struct Embedding {
  std::vector<Route> routes;  // Shared by the lanes.
  std::vector<Lane> lanes;
  std::string method;               // "packed rings", "direct trees + ...": in words.
  double gigabytes_per_second = 0;  // All-gather: message size / time, as load() says.
  Bound bound;                      // The whole machine's.
  /// With only the kinds of links that the lanes use, and no GPU that is not an endpoint: those
  /// run nothing that could pass data on.
  Bound bound_of_kinds;
  std::vector<LinkKind> kinds;  // Those.
  /// What the best rings gather, GB/s, be they the lanes or not; 0: there are none.
  double rings = 0;
  /// No rings gather more, GB/s: each carries all data into the first host. With one host: 0, none.
  double ring_limit = 0;
  double share = 0, share_of_kinds = 0;  // Share of either bound, in (0, 1].
  std::vector<std::string> report;       // Lines for people.
};

/// What the lanes put on the links, from lanes and routes alone.
struct Load {
  struct Link {
    double forward = 0, backward = 0;  // GB/s at the lanes' weights.
  };
  std::vector<Link> links;  // As in Graph::links.
  double busiest = 0;       // Largest load / bandwidth. Above 1 the lanes do not fit.
  EdgeUse bottleneck;       // The first link direction that is as busy.
  /// What the lanes gather when scaled so that the bottleneck is full, GB/s.
  double gigabytes_per_second = 0;
};

/// Error, kInvalidPlan: lanes that are neither rings nor trees over the same endpoints, hops that
/// lose or invent traffic, weights that are not positive, links that do not exist or carry nothing.
Result<Load> load(const Graph& graph, std::span<const Lane> lanes, std::span<const Route> routes);
inline Result<Load> load(const Graph& graph, const Embedding& embedding) {
  return load(graph, embedding.lanes, embedding.routes);
}

struct EmbedOptions {
  /// Endpoints up to which rings and trees are packed, of one host or of all; at most 16.
  std::size_t most_packed = 16;
  /// Only rings, also where trees gather more: for callers that want orders of the endpoints.
  bool rings_only = false;
};

/// Lanes for an all-gather over these endpoints. The same input gives the same lanes everywhere.
/// Errors: those of bound(), and endpoints that no route joins without passing another GPU. Time:
/// a few ms for 8 GPUs, a second for a mesh of 16; linear in lanes times endpoints times hosts for
/// a cluster.
Result<Embedding> embed(const Graph& graph, std::span<const NodeId> endpoints,
                        const EmbedOptions& options = {});

}  // namespace tutti::topology
