// File: topology/embed.h: rings laid over a machine, and how fast they gather.
//
// The model is that of bound.h: link directions with bandwidths, no latency. A lane is a ring of
// all endpoints; a hop from one endpoint to the next is a route, a unit flow over link directions:
// where ways lie side by side (NVSwitches, spines) a hop uses all of them by shares. A lane of
// weight w of a sum W gathers the share w/W of every message: each of its hops carries (N-1)/N of
// that share. So lanes whose loads fit the links gather W * N/(N-1) GB/s.
//
// Methods, the simplest that is best wins: rotations of one order for what hangs on switches or on
// a tree; for up to 16 endpoints packed rings (embed_rings.h); several hosts are joined rail by
// rail (embed_groups.h). Rings are not always enough: then the report says which cut leaves room.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/bound.h"

namespace tutti::topology {

/// The share of a hop that crosses a link direction: (0, 1].
struct EdgeUse {
  std::uint32_t link = 0;  // In Graph::links.
  bool forward = true;     // From the link's a to its b.
  double share = 1;
};
/// A hop: what leaves one endpoint arrives, whole, at another.
using Route = std::vector<EdgeUse>;

struct Lane {
  std::vector<NodeId> order;        // Of all endpoints; the last one's next is the first.
  std::vector<std::uint32_t> hops;  // hops[i], in Embedding::routes: from order[i] to its next.
  double gigabytes_per_second = 0;  // The weight. All lanes at once fit the links.
};

struct Embedding {
  std::vector<Route> routes;  // Shared by the lanes.
  std::vector<Lane> lanes;
  std::string method;               // "rotations", "packed rings", ...: in words.
  double gigabytes_per_second = 0;  // All-gather: message size / time, as load() says.
  Bound bound;                      // Of the whole machine.
  Bound bound_of_kinds;             // With only the kinds of links that the lanes use.
  std::vector<LinkKind> kinds;      // Those.
  /// No rings gather more, GB/s: each carries all data into the first host. Of one host: 0, none.
  double ring_limit = 0;
  double share = 0, share_of_kinds = 0;  // Of either bound, in (0, 1].
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

/// Error, kInvalidPlan: lanes that are no rings of the same endpoints, hops that lose or invent
/// traffic, weights that are not positive, links that do not exist or carry nothing.
Result<Load> load(const Graph& graph, const Embedding& embedding);

struct EmbedOptions {
  std::size_t most_packed = 16;  // Endpoints of one host up to which rings are packed; at most 16.
};

/// Lanes for an all-gather over these endpoints. The same input gives the same lanes everywhere.
/// Errors: those of bound(), and endpoints that no route joins without passing another GPU. Time:
/// a few ms for 8 GPUs, a second for a mesh of 16; linear in lanes times endpoints for a cluster.
Result<Embedding> embed(const Graph& graph, std::span<const NodeId> endpoints,
                        const EmbedOptions& options = {});

}  // namespace tutti::topology
