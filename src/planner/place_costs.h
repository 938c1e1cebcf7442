// File: planner/place_costs.h: what data between ranks on CPUs pass, by the graph of their hosts
// (topology/graph/graph.h): the links between NUMA nodes, the way to the network, and the network.
//
// A place is a NUMA node with ranks. What goes from one to another takes the shortest ways by
// shares; within a place it passes the memory alone. Links whose rate nobody knows take no time,
// but those of the network: they carry what is assumed of it (Hosts::cost).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/estimate/estimate.h"
#include "planner/planner.h"
#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::planner {

/// Places beyond which a graph is not used: their ways are found for all pairs, when ranks join.
inline constexpr std::size_t kMostPlaces = 64;

/// Made once, then shared by threads.
struct PlaceCosts {
  std::shared_ptr<const topology::Graph> graph;
  std::string source;                        // "topology of cluster.topo".
  std::uint64_t hash = 0;                    // The graph's and the ranks' places'.
  std::vector<topology::NodeId> places;      // Those with ranks, by first rank.
  std::vector<std::uint32_t> of;             // By rank: which of the places.
  std::vector<plan::Resource> resources;     // Link directions, then the memories of the places.
  std::vector<std::vector<plan::Use>> uses;  // By place and place.
  bool differ = false;                       // Some pairs of places have other ways than others.
  LinkCost network;  // Between the two hosts nearest each other, if that was
                     // measured; else 0.

  const std::vector<plan::Use>& between(Rank from, Rank to) const {
    const auto at = [&](Rank rank) { return of[static_cast<std::size_t>(rank.value)]; };
    return uses[at(from) * places.size() + at(to)];
  }
};

/// `place_of_rank`: NUMA nodes. `hosts`: of which hosts the ranks are, and what is assumed of their
/// network. Errors, in words for people: too many places, or places that nothing joins.
Result<PlaceCosts> place_costs(std::shared_ptr<const topology::Graph> graph, std::string source,
                               std::span<const topology::NodeId> place_of_rank, const Hosts& hosts);

/// The shape with the trees that fit the places' links together, where plans along them may be
/// taken under the contract. Remembered for the process. Any thread.
plan::Shape with_trees(plan::Shape shape, Contract contract, const PlannerInputs& inputs);

/// What ranks of the places pay within a host, if that was measured; else what is assumed.
HostCosts measured_costs(const PlaceCosts& places, const HostCosts& assumed);

/// Groups of hosts, and inside of them of NUMA nodes, if ranks in a row are near each other; none:
/// there is nothing to gain by it.
plan::GroupSizes groups_on(const PlannerInputs& inputs, int rank_count);

/// How much of an all-reduce each rank should own, as shares_for(); none where ranks are alike.
std::vector<int> weights_on(const PlannerInputs& inputs, int rank_count);

}  // namespace tutti::planner
