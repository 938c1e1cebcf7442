#include "topology/embedding/forests.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "topology/embedding/network.h"
#include "topology/embedding/trees.h"

namespace tutti::topology {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// Trees in a group: spread[at * size + member], places counted within the group.
struct Spread {
  double weight = 1;  // In proportion to the group's others.
  std::vector<Source> sources;
};
using Spreads = std::vector<Spread>;

Spreads direct(Router& router, std::span<const NodeId> members) {
  const std::size_t size = members.size();
  Spread spread{1, std::vector<Source>(size * size)};
  for (std::uint32_t at = 0; at < size; ++at) {
    for (std::size_t to = 0; to < size; ++to) {
      if (to == at) continue;
      const auto hop = router.hop(members[at], members[to]);
      if (!hop) return {};
      spread.sources[at * size + to] = {at, *hop};
    }
  }
  return {std::move(spread)};
}

Spreads packed_spreads(const Graph& graph, Router& router, std::span<const NodeId> members,
                       Over over, double enough) {
  const std::size_t size = members.size();
  if (size == 1) return {{1, {Source{}}}};
  const EndpointNetwork machine = endpoint_network(graph, members, over);
  // Far from 64 bits, also as a sum over arcs or roots.
  constexpr double kMost = 1e15;
  const TreePacking packing = pack_trees(
      machine.network, static_cast<std::int64_t>(std::ceil(std::min(enough * 1e6, kMost))));
  std::vector<std::uint32_t> hops;
  for (const TreePacking::Hop& hop : packing.hops) {
    Route route;
    for (const auto& [arc, share] : hop.shares) {
      for (const EdgeUse& use : machine.routes[arc])
        route.push_back({use.link, use.forward, use.share * share});
    }
    hops.push_back(router.add(std::move(route)));
  }
  Spreads spreads;
  for (const TreePacking::Forest& forest : packing.forests) {
    Spread& spread = spreads.emplace_back();
    spread.weight = static_cast<double>(forest.weight);
    for (const std::uint32_t parent : forest.parents) {
      spread.sources.push_back(parent == TreePacking::kNone
                                   ? Source{}
                                   : Source{packing.hops[parent].from, hops[parent]});
    }
  }
  return spreads;
}

// By member: the nearest other one over slow links, each in one pair; itself if none is left.
std::vector<std::uint32_t> partners(const Router& router, std::span<const NodeId> members) {
  std::vector<std::array<std::uint32_t, 3>> near;  // Links, and two members.
  for (std::uint32_t a = 0; a < members.size(); ++a) {
    const auto links = router.distances(members[a], Over::kSlow);
    for (std::uint32_t b = a + 1; b < members.size(); ++b) {
      const auto found = links.find(members[b]);
      if (found != links.end()) near.push_back({static_cast<std::uint32_t>(found->second), a, b});
    }
  }
  std::sort(near.begin(), near.end());
  std::vector<std::uint32_t> partner(members.size());
  std::iota(partner.begin(), partner.end(), 0U);
  for (const auto& [links, a, b] : near) {
    if (partner[a] != a || partner[b] != b) continue;
    partner[a] = b;
    partner[b] = a;
  }
  return partner;
}

Spreads paired(Router& router, std::span<const NodeId> members) {
  const std::size_t size = members.size();
  const auto partner = partners(router, members);
  Spread spread{1, std::vector<Source>(size * size)};
  for (std::uint32_t at = 0; at < size; ++at) {
    for (std::uint32_t to = 0; to < size; ++to) {
      // The root decides which of a pair is sent to directly, so that both are as often.
      const bool is_second = partner[to] != to && (to > partner[to]) == (at % 2 == 0);
      const bool passed_on = partner[to] == at || (is_second && partner[at] != to);
      if (to == at) continue;
      const std::uint32_t from = passed_on ? partner[to] : at;
      const auto hop = passed_on ? router.hop(members[from], members[to], Over::kSlow)
                                 : router.hop(members[from], members[to]);
      if (!hop) return {};
      spread.sources[at * size + to] = {from, *hop};
    }
  }
  return {std::move(spread)};
}

// By which NIC an endpoint's blocks leave, and those on its rail enter.
using Doors = std::vector<NodeId>;

// Lanes in which the members together use every NIC by its rate: in lane l member i has door
// doors[l][i]. Near ones first; a member with several NICs uses another one in each lane.
std::vector<Doors> doors_of(const Graph& graph, const Router& router, const Group& group,
                            std::size_t lanes) {
  const std::size_t size = group.order.size(), count = group.nics.size();
  std::vector<Doors> doors(lanes, Doors(size));
  if (count == 0) return doors;
  const Adjacency adjacency(graph);
  std::vector<double> rates;
  for (const NodeId nic : group.nics) rates.push_back(port_rate(graph, adjacency, nic));
  if (*std::min_element(rates.begin(), rates.end()) <= 0) rates.assign(count, 1);
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  const auto slots = static_cast<double>(size * lanes);
  std::vector<std::size_t> left, free(size, lanes);  // By NIC, by member.
  for (const double rate : rates)
    left.push_back(static_cast<std::size_t>(std::ceil(rate / sum * slots - 1e-9)));
  std::vector<std::array<std::size_t, 3>> near;  // Links, member, NIC.
  for (std::size_t nic = 0; nic < count; ++nic) {
    const auto links = router.distances(group.nics[nic], Over::kHost);
    for (std::size_t i = 0; i < size; ++i) {
      const auto found = links.find(group.order[i]);
      if (found != links.end()) near.push_back({static_cast<std::size_t>(found->second), i, nic});
    }
  }
  std::sort(near.begin(), near.end());
  // One slot at a time, so that equally near members and NICs share alike.
  for (bool more = true; more;) {
    more = false;
    std::vector<bool> served(size);
    std::vector<bool> taken(count);
    for (const auto& [links, i, nic] : near) {
      if (free[i] == 0 || left[nic] == 0 || served[i] || taken[nic]) continue;
      doors[lanes - free[i]][i] = group.nics[nic];
      --free[i];
      --left[nic];
      served[i] = taken[nic] = more = true;
    }
  }
  return doors;
}

// A number of lanes in which every member of every group gets as many NICs as any other.
std::size_t lanes_of_doors(const std::vector<Group>& groups) {
  constexpr std::size_t kMost = 8;
  std::size_t lanes = 1;
  for (const Group& group : groups) {
    if (groups.size() == 1 || group.nics.empty()) continue;
    lanes = std::lcm(lanes, group.nics.size() / std::gcd(group.nics.size(), group.order.size()));
    if (lanes > kMost) return kMost;
  }
  return lanes;
}

// From which group a block of `home` comes into group `to`.
std::size_t group_before(Across across, std::size_t groups, std::size_t home, std::size_t to) {
  if (across == Across::kStar) return home;
  const auto block = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(groups))));
  if (to / block == home / block) return home;
  // The receiver for a block: the group in the place of the root's group, or the block's last.
  const std::size_t receiver = std::min(to / block * block + home % block, groups - 1);
  return to == receiver ? home : receiver;
}

class Composer {
 public:
  Composer(const Graph& graph, Router& router, const std::vector<Group>& groups, Across across)
      : router_(router), groups_(groups), across_(across) {
    const std::size_t lanes = lanes_of_doors(groups);
    lane_.starts.push_back(0);
    for (const Group& group : groups) {
      lane_.order.insert(lane_.order.end(), group.order.begin(), group.order.end());
      lane_.starts.push_back(static_cast<std::uint32_t>(lane_.order.size()));
      widest_ = std::max(widest_, group.order.size());
      doors_.push_back(doors_of(graph, router, group, lanes));
    }
  }

  /// `spreads`: by group. Their weights cut every message; a lane has one spread of each group.
  std::optional<std::vector<Lane>> run(const std::vector<Spreads>& spreads) {
    std::vector<std::vector<double>> ends;
    std::set<double> cuts;
    for (const Spreads& of_group : spreads) {
      if (of_group.empty()) return std::nullopt;
      double total = 0;
      for (const Spread& spread : of_group) total += spread.weight;
      auto& list = ends.emplace_back();
      for (const Spread& spread : of_group)
        list.push_back((list.empty() ? 0 : list.back()) + spread.weight / total);
      list.back() = 1;
      cuts.insert(list.begin(), list.end());
    }
    std::vector<Lane> lanes;
    double begin = 0;
    for (const double end : cuts) {
      if (end - begin < 1e-6) continue;  // Rounding of equal ends.
      std::vector<const Spread*> chosen;
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        const double middle = (begin + end) / 2;
        const auto found = std::upper_bound(ends[g].begin(), ends[g].end(), middle);
        chosen.push_back(&spreads[g][static_cast<std::size_t>(found - ends[g].begin())]);
      }
      for (std::size_t door = 0; door < doors_[0].size(); ++door) {
        if (!add_lane(chosen, door, end - begin, lanes)) return std::nullopt;
      }
      begin = end;
    }
    return lanes;
  }

  /// The tree of one group in the lanes' notation, for the place from which a block is passed on
  /// depends on where it goes.
  std::optional<std::vector<Lane>> rails_last() {
    std::vector<Lane> lanes;
    const std::size_t size = lane_.order.size(), members = widest_;
    for (std::size_t door = 0; door < doors_[0].size(); ++door) {
      Lane& lane = lanes.emplace_back();
      lane.order = lane_.order;
      lane.starts = {0, static_cast<std::uint32_t>(size)};
      lane.gigabytes_per_second = 1;
      for (std::uint32_t root = 0; root < size; ++root) {
        lane.entries.push_back({root, {}});
        for (std::size_t to = 0; to < size; ++to) {
          const bool at_home = to / members == root / members;
          const std::size_t from = at_home ? root : root / members * members + to % members;
          if (to == root) {
            lane.spread.emplace_back();
            continue;
          }
          const auto hop = at_home ? router_.hop(lane.order[from], lane.order[to])
                                   : router_.hop(lane.order[from], door_of(from, door),
                                                 door_of(to, door), lane.order[to]);
          if (!hop) return std::nullopt;
          lane.spread.push_back({static_cast<std::uint32_t>(from), *hop});
        }
      }
    }
    return lanes;
  }

 private:
  NodeId door_of(std::size_t place, std::size_t door) const {
    return doors_[place / widest_][door][place % widest_];
  }

  bool add_lane(const std::vector<const Spread*>& spreads, std::size_t door, double weight,
                std::vector<Lane>& lanes) {
    Lane lane = lane_;
    lane.gigabytes_per_second = weight;
    lane.spread.resize(lane.order.size() * widest_);
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const std::size_t first = lane.starts[g], size = groups_[g].order.size();
      for (std::size_t i = 0; i < size * size; ++i) {
        Source source = spreads[g]->sources[i];
        if (source.from != Source::kNone) source.from += static_cast<std::uint32_t>(first);
        lane.spread[(first + i / size) * widest_ + i % size] = source;
      }
    }
    for (std::size_t home = 0; home < groups_.size(); ++home) {
      for (std::size_t i = 0; i < groups_[home].order.size(); ++i) {
        if (!add_entries(home, i, door, lane)) return false;
      }
    }
    lanes.push_back(std::move(lane));
    return true;
  }

  // Where the block of a root enters a group: its counterpart where all groups are of one size,
  // else in turns.
  std::size_t member(std::size_t home, std::size_t root, std::size_t group) const {
    if (group == home) return root;
    return (lane_.starts[home] + root) % groups_[group].order.size();
  }

  bool add_entries(std::size_t home, std::size_t root, std::size_t door, Lane& lane) {
    for (std::size_t to = 0; to < groups_.size(); ++to) {
      const std::size_t at = member(home, root, to);
      Lane::Entry entry{static_cast<std::uint32_t>(lane.starts[to] + at), {}};
      if (to != home) {
        const std::size_t from = group_before(across_, groups_.size(), home, to);
        const std::size_t sender = member(home, root, from);
        const auto hop = router_.hop(groups_[from].order[sender], doors_[from][door][sender],
                                     doors_[to][door][at], groups_[to].order[at]);
        if (!hop) return false;
        entry.source = {static_cast<std::uint32_t>(lane.starts[from] + sender), *hop};
      }
      lane.entries.push_back(entry);
    }
    return true;
  }

  Router& router_;
  const std::vector<Group>& groups_;
  Across across_;
  Lane lane_;  // Order and groups.
  std::size_t widest_ = 0;
  std::vector<std::vector<Doors>> doors_;  // By group and lane.
};

}  // namespace

std::optional<std::vector<Lane>> forests(const Graph& graph, Router& router,
                                         const std::vector<Group>& groups, Inside inside,
                                         Across across, std::size_t most, double bound) {
  std::vector<Spreads> spreads;
  for (const Group& group : groups) {
    const bool packs = inside == Inside::kPackedFast || inside == Inside::kPackedHost;
    if (packs && group.order.size() > std::min(most, TreePacking::kMostPlaces)) return std::nullopt;
    switch (inside) {
      case Inside::kDirect: spreads.push_back(direct(router, group.order)); break;
      case Inside::kPaired: spreads.push_back(paired(router, group.order)); break;
      case Inside::kPackedFast:
      case Inside::kPackedHost: {
        const Over over = inside == Inside::kPackedFast ? Over::kFast : Over::kHost;
        const auto size = static_cast<double>(group.order.size());
        const double enough = groups.size() == 1 ? kUnlimited : bound / size;
        spreads.push_back(packed_spreads(graph, router, group.order, over, enough));
        break;
      }
    }
    if (spreads.back().empty()) return std::nullopt;
  }
  return Composer(graph, router, groups, across).run(spreads);
}

std::optional<std::vector<Lane>> rails_last(const Graph& graph, Router& router,
                                            const std::vector<Group>& groups) {
  constexpr std::size_t kMost = 64;  // Endpoints: the table is N * N, and it is for two hosts.
  std::size_t size = 0;
  for (const Group& group : groups) {
    if (group.order.size() != groups[0].order.size()) return std::nullopt;
    size += group.order.size();
  }
  if (size > kMost) return std::nullopt;
  return Composer(graph, router, groups, Across::kStar).rails_last();
}

std::optional<std::vector<Lane>> packed_whole(const Graph& graph, Router& router,
                                              std::span<const NodeId> endpoints, std::size_t most) {
  if (endpoints.size() > std::min(most, TreePacking::kMostPlaces)) return std::nullopt;
  Group all;
  all.order.assign(endpoints.begin(), endpoints.end());
  std::sort(all.order.begin(), all.order.end());
  const std::vector<Group> groups{all};
  const auto spreads = packed_spreads(graph, router, all.order, Over::kAny, kUnlimited);
  return Composer(graph, router, groups, Across::kStar).run({spreads});
}

}  // namespace tutti::topology
