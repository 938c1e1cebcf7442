// File: plan/estimate/refine.h: the coarsest partition of actors, channels and servers in which
// those of a class have the same neighbours (classes.h), by refinement.
//
// In each round, the classes of those whose neighbours were told apart are looked at again, and
// split where neighbours differ. A part that was not looked at keeps its class. So if a large class
// loses a few parts, only these few have neighbours to look at in the next round.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/estimate/instances.h"

namespace tutti::plan {

struct Classes {
  std::vector<std::uint32_t> of;           // The class of each.
  std::vector<std::uint32_t> first, size;  // By class: a member, and how many there are.
};
struct Partition {
  Classes actors, channels, servers;
};

Partition nobody_alike(const Instances& instances, const Ways& ways);

/// Labels: what tells nodes apart to begin with. Nodes are actors, then channels, then servers.
Partition refine(const Instances& instances, const Ways& ways,
                 const std::vector<std::uint64_t>& labels);

}  // namespace tutti::plan
