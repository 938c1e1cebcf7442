// File: planner/simulate_symmetry.h: a few ranks that stand for all, where that is exact.
//
// A plan whose ranks all do the same, shifted by s ranks, on a machine on which the shift changes
// nothing, runs alike in every s-th rank: simulating s of them is enough. Nothing is believed; all
// of it is looked at:
//   plan       rank r + s does what rank r does, all peers shifted by s (three are compared for
//              each of the s; the tests compare all, for smaller n)
//   routes     the routes of a channel and of its shifted images have the same length, shares,
//              bandwidths and latency, place by place; link directions at the same place of images
//              are of one class
//   load       every member of a class is crossed by as many images of each channel as every other
// Then all members of a class always have the same to do at the same moment, and one server for a
// class, with the share that comes together on one member, gives the same times (estimate.h).
// Lanes may be images of each other too (rings that are rotations): then one stands for all.
#pragma once
#include <optional>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/estimate.h"

namespace tutti::planner {

struct Symmetric {
  plan::Plan plan;                           // Lists the ranks that stand for all.
  std::uint32_t channels = 1;                // Lanes on each order.
  std::vector<std::size_t> representatives;  // By class: a resource of the model that was given.

  // From the model that was given to that of the classes.
  std::vector<std::vector<Rank>> orders;  // As CostModel's.
  std::vector<std::uint32_t> classes;     // By resource; ~0: not used.
  std::vector<double> shares;             // By class: what comes together of a share of 1.

  /// The model of the classes for a model like the one that was given: the same resources, rates
  /// in the same proportions, latencies alike where they were.
  plan::CostModel model(const plan::CostModel& whole) const;
};

/// The smallest such plan with s a multiple of `group`, and up to `most_channels` lanes on each
/// order; none if there is none below all ranks. Looks at each route of the plan once.
std::optional<Symmetric> find_symmetry(const Algorithm& algorithm, const plan::Shape& shape,
                                       const plan::CostModel& model,
                                       const std::vector<std::vector<Rank>>& orders, int group,
                                       std::uint32_t most_channels);

}  // namespace tutti::planner
