// File: tools/tune/tune.h: measuring every way that a call can go, for a tuning table.
#pragma once
#include <chrono>
#include <functional>
#include <string>

#include "perf/sweep/noise.h"
#include "planner/tuning_table.h"
#include "tutti/communicator.h"

namespace tutti::tools {

struct TuneOptions {
  std::vector<Collective> collectives;
  std::size_t least_bytes = 64, most_bytes = std::size_t{4} << 20;
  std::size_t factor = 4;
  int rounds = 9;
  double round_us = 2000;  // For one candidate in one round; longer calls are made once.
  double seconds = 45;     // For the whole measurement: if it takes longer, it has fewer rounds.
};

/// How far it is: of so many sizes, this one is next.
using TuneProgress = std::function<void(std::size_t done, std::size_t all, Collective collective,
                                        bool mapped, std::size_t bytes)>;

/// The measured link between two ranks.
struct LinkFigure {
  std::string transport, between;
  LinkCost cost;
};

/// Whether this host has fewer CPUs than ranks. Then rounds differ also on a quiet machine, since
/// the scheduling of the ranks is part of what is measured.
bool oversubscribed(const Communicator& comm);
/// The number of ranks on the host that has most.
int ranks_here(const Communicator& comm);

/// A table with its key and what links cost, and no ways yet; alike on all ranks, but that only
/// rank 0 has `figures`, of every transport in use. `noise` gets the rounds. Collective.
Result<planner::TuningTable> tune_links(Communicator& comm, std::vector<LinkFigure>& figures,
                                        perf::Noise& noise);

/// Fills in the ways. Every rank gets the same times, so drops the same candidates. The
/// communicator has to keep the relaxed contract, so that nothing is refused; which ways another
/// contract may use is seen when the table is. `noise` gets the rounds. Collective; the first error
/// ends it.
Status tune_ways(Communicator& comm, const TuneOptions& options, const TuneProgress& progress,
                 planner::TuningTable& table, perf::Noise& noise);

/// Lanes that ranks on several hosts need to measure everything.
inline constexpr std::size_t kMostTunedLanes = 4;

using Clock = std::chrono::steady_clock;

inline double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// The slowest rank's.
inline Result<double> slowest(Communicator& comm, double us) {
  TUTTI_RETURN_IF_ERROR(comm.call({.collective = Collective::kAllReduce,
                                   .input = &us,
                                   .output = &us,
                                   .count = 1,
                                   .type = DataType::kFloat64,
                                   .reduction = ReduceOp::kMax,
                                   .algorithm = planner::kEagerName}));
  return us;
}

/// Microseconds a call, of so many in a row.
inline Result<double> timed(Communicator& comm, const Request& request, int calls) {
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) TUTTI_RETURN_IF_ERROR(comm.call(request));
  return slowest(comm, since_us(start) / calls);
}

}  // namespace tutti::tools
