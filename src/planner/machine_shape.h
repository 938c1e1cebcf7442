// File: planner/machine_shape.h: what a machine says about the shape of a plan: which ranks are
// near each other, and which rank orders keep the canonical tree.
//
// All is read off the routes of a cost model, so it holds for whatever a graph describes: sockets,
// quads of GPUs with NVLinks among themselves, hosts; a NIC at half its rate.
#pragma once
#include <span>
#include <vector>

#include "plan/estimate/estimate.h"
#include "plan/plan.h"
#include "topology/graph/graph.h"

namespace tutti::planner {

/// Endpoints in the order of the graph, by what NVLink and PCI Express join: a host, or a rack.
struct Groups {
  std::vector<topology::NodeId> endpoints;  // Rank by rank, group after group.
  int size = 1;                             // Ranks of a group; 1 if groups differ.
  int count = 1;
};

/// Ways to nest ranks in groups, never empty: hosts (or racks); and, where some ranks of a host are
/// nearer each other (fewer links) than others, the largest such groups inside hosts. Hosts are
/// taken to be like the first; the model needs to know only of its ranks.
std::vector<plan::GroupSizes> nestings(const Groups& groups, const plan::CostModel& model);

/// Whether ranks at the places that `order` says still add up along the canonical tree of the
/// places: only the children of nodes of equal size are swapped.
bool keeps_canonical_tree(std::span<const Rank> order);

/// Rotates a rank order so that the root is at its own place: only there is what it has to give.
void put_root(std::vector<Rank>& order, int root);

}  // namespace tutti::planner
