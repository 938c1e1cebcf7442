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
  double time_share = 0;  // and of their time that they did nothing but wait for it.
};

/// How long a rank trained, and how long it did nothing but wait for its calls. Calls that go on
/// while it computes may wait for other ranks at no cost.
struct Spent {
  double seconds = 0, idle_seconds = 0;
};

/// Adds up for which rank all ranks waited since each took `before`. Collective.
Result<Straggler> find_straggler(Communicator& comm, const Counters& before, const Spent& spent);

}  // namespace tutti::trainer
