// File: topology/embedding/forests.h: lanes of trees, put together from trees inside groups and
// ways between them.
//
// A block crosses the network once for every foreign group: out by a NIC next to its root, in by
// the NIC on the same rail, and there it is spread by the tree of the endpoint next to it. So a NIC
// carries its share of what is missing in a group, and nothing twice. Inside a group, the simplest
// trees that do:
//
//   direct   the root sends to each: switches, full meshes
//   packed   trees.h: a cube mesh, PCI Express trees; up to 16 endpoints
//   paired   the root sends to one of every two neighbours, which passes it on over PCI Express or
//            C2C; makes sense beside direct trees, where those fill the fast links
//
// Between groups the root sends to all (`star`), or to one of each block of groups, and those to
// their block (`grid`: fewer connections, and data crosses between the blocks once).
#pragma once
#include <optional>

#include "topology/embedding/groups.h"

namespace tutti::topology {

enum class Inside : std::uint8_t { kDirect, kPackedFast, kPackedHost, kPaired };
enum class Across : std::uint8_t { kStar, kGrid };

/// Lanes of one way to spread and one way to cross, whose weights are right in proportion. None if
/// some hop has no way, or trees were to be packed in a group of more than `most` endpoints.
/// `bound`: GB/s that can't be exceeded, so that trees in one of several groups need not either.
std::optional<std::vector<Lane>> forests(const Graph& graph, Router& router,
                                         const std::vector<Group>& groups, Inside inside,
                                         Across across, std::size_t most, double bound);

/// Every block is spread among its own group, and from each member to its counterparts in the other
/// groups, which have as many: NICs carry more, links inside carry less.
std::optional<std::vector<Lane>> rails_last(const Graph& graph, Router& router,
                                            const std::vector<Group>& groups);

/// Trees packed in all links of a machine: the optimum, for up to `most` endpoints.
std::optional<std::vector<Lane>> packed_whole(const Graph& graph, Router& router,
                                              std::span<const NodeId> endpoints, std::size_t most);

}  // namespace tutti::topology
