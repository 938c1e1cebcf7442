// File: topology/embedding/split.h: a network with switches turned into one of endpoints alone, in
// which as much can be gathered.
//
// Edge splitting (Mader 1978; of digraphs in which every node is entered by as much as leaves it:
// Frank 1989, Jackson 1988; Bang-Jensen, Frank and Jackson 1995): from a switch w some of u -> w
// and as much of w -> t are taken away and u -> t is given it, as long as every endpoint can still
// be reached by `supply` from each endpoint at once. Done for every pair of neighbours of every
// switch it leaves no switch in use. Machines whose links are as fast back as forth fulfil the
// condition; where it is not fulfilled something may be left, and then the whole is checked again.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tutti::topology {

/// Directed, with integer capacities. The first `places` nodes are endpoints, the rest switches.
struct SwitchedNetwork {
  struct Arc {
    std::uint32_t from, to;
    std::int64_t capacity;
  };
  std::size_t places = 0, nodes = 0;
  std::vector<Arc> arcs;
};

/// What one endpoint can send straight to another, and over which arcs of the network: units of
/// capacity by arc. They form a flow of that size.
struct DirectEdge {
  std::int64_t capacity = 0;
  std::map<std::uint32_t, double> arcs;
};

/// The largest x, at most `most`, of which every endpoint can send so much to all others at the
/// same time: the bound of an all-gather in this network. At least one endpoint more than one.
std::int64_t largest_supply(const SwitchedNetwork& network, std::int64_t most);

/// Whether `supply` is at most that.
bool can_gather(const SwitchedNetwork& network, std::int64_t supply);

/// By [from * places + to]. None if switches can't be taken out without gathering less.
std::optional<std::vector<DirectEdge>> split_switches(const SwitchedNetwork& network,
                                                      std::int64_t supply);

}  // namespace tutti::topology
