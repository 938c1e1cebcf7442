// File: tools/tune.h: measuring every way that a call can go, for a tuning table.
#pragma once
#include <functional>

#include "planner/tuning_table.h"
#include "tutti/communicator.h"

namespace tutti::tools {

struct TuneOptions {
  std::vector<Collective> collectives;
  std::size_t least_bytes = 64, most_bytes = std::size_t{4} << 20;
  std::size_t factor = 4;
  int cpus = 1;  // That the ranks share.
  int rounds = 9;
  double round_us = 2000;  // Of one candidate in one round; longer calls are made once.
};

/// How far it is: of so many sizes, this one is next.
using TuneProgress = std::function<void(std::size_t done, std::size_t all, Collective collective,
                                        bool mapped, std::size_t bytes)>;

/// Measures on all ranks; every rank gets the same times, so drops the same candidates. The key is
/// left to the caller. The communicator has to keep the relaxed contract, so that nothing is
/// refused; which ways another contract may use is seen when the table is. The first error ends it.
Result<planner::TuningTable> tune(Communicator& comm, const TuneOptions& options,
                                  const TuneProgress& progress);

/// The sizes of a tuning, ascending.
std::vector<std::size_t> tune_sizes(const TuneOptions& options);

}  // namespace tutti::tools
