// File: planner/simulate/explain.h: why one algorithm is faster than another on a machine that need
// not be here, in words.
//
// All is derived from simulated times (simulate.h), which are the sum of three: starting up (the
// protocol's), latency (messages one after the other on the critical path), and the rest, in which
// bytes move. A loser lost where it is behind the best by most; where bytes are what it lost by,
// the busiest resource says whether it had more of them to carry, or waited more.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/simulate/simulate.h"

namespace tutti::planner {

/// One way to do it.
struct Contender {
  const Algorithm* algorithm = nullptr;
  std::optional<Sample> sample;  // None: it can't be done, or can't be simulated.
  bool refused = false;          // It may not be chosen.
  std::string why;               // Why not, or what it lost by; of the best empty.
};

struct Explanation {
  /// Those that may be chosen first, fastest first; then the others, likewise.
  std::vector<Contender> contenders;
  double bound_us = 0;       // For plans that may be chosen; 0: not known.
  std::string bound_words;   // The cut behind it; or why there is none.
  bool bound_joins = false;  // Switches that join messages count in it.
  std::string assumed;       // Which figures of the machine are guesses; "" if none is.
  std::string consists_of;   // The parts of the best's time.
  std::string to_be_faster;  // What would have to change.

  const Sample& best() const { return *contenders.front().sample; }
};

/// The algorithms (empty: all of the collective) with the fastest of the protocols (empty: all) on
/// the simulator's machine, under its contract; what that forbids is simulated all the same. An
/// error if nothing may be chosen: the simulator's, or what stands in the way.
Result<Explanation> explain(Simulator& simulator, std::span<const Algorithm* const> algorithms,
                            std::span<const Protocol* const> protocols, std::size_t bytes);

}  // namespace tutti::planner
