// File: trainer/stragglers.h: which rank the others waited for while they trained.
#pragma once
#include <vector>

#include "tutti/communicator.h"

namespace tutti::trainer {

/// The rank for which the others waited longest, alike on all ranks; -1: nobody waited. Shares are
/// averages over the other ranks.
struct Straggler {
  int rank = -1;
  double last_share = 0;  // The share of their calls to which it came last while they waited,
  double time_share = 0;  // and of their time that they waited for it.
};

/// Adds up what all ranks waited since `before`, which each took `seconds` ago. Collective.
Result<Straggler> find_straggler(Communicator& comm, const Counters& before, double seconds);

}  // namespace tutti::trainer
