// File: tools/tune/rates.h: what the hosts of a communicator carry, for `tutti tune` and `tutti
// topo measure`.
//
// Hosts are measured in pairs that exchange long messages both ways, all pairs at once, in rounds
// in which each has another partner. A host is as fast as it was with its best partner, so a slow
// one does not make its partners look slow; a pair is as fast as it was in its best round.
#pragma once
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "tools/tune/tune.h"

namespace tutti::tools {

/// Rates that differ by less are taken to be alike: so much is noise.
inline constexpr double kAlikeRates = 1.3;

/// GB/s in each direction.
struct NetworkRates {
  std::vector<double> hosts;  // By host.
  std::map<std::pair<int, int>, double>
      pairs;  // By two hosts, the lower first, that were partners.
};

/// `hosts` by rank, as planner::Hosts::of. Alike on all ranks. Collective.
Result<NetworkRates> network_rates(Communicator& comm, const std::vector<int>& hosts);

/// The time of a network for 8 bytes from rank 0 to the other and as many back at the same time, in
/// us: an eager all-reduce between the two. Collective.
Result<double> network_hop_us(Communicator& comm, int other, perf::Noise* noise);

/// Between two threads of this process, by the transport of the settings.
Result<LinkCost> thread_cost(const Settings& settings, perf::Noise& noise);

/// Bytes that this thread reads and writes while it adds two vectors in the cache, GB/s.
double adding_rate();

/// What `body` measures on the ranks of a communicator of two threads: rank 0's value.
template <class Value>
Result<Value> in_two_threads(Settings settings,
                             const std::function<Result<Value>(Communicator&)>& body) {
  settings.weights.clear();
  settings.groups.clear();
  settings.algorithm.clear();
  settings.topology = "off";
  TUTTI_TRY(auto comms, Communicator::in_process(2, settings));
  std::vector<Result<Value>> values(2, Value{});
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto thread = start_thread<std::jthread>("a thread that measures links",
                                               [&, rank] { values[rank] = body(comms[rank]); });
      if (!thread) {
        comms.front().abort("a rank's thread can't be started");  // The other rank waits for it.
        return std::move(thread.error());
      }
      threads.push_back(std::move(*thread));
    }
  }
  return values[0];
}

/// The median of some rounds, which the noise gets if they show it.
template <class Round>
Result<double> in_rounds(perf::Noise* noise, const Round& round) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    TUTTI_TRY(const double time, round());
    times.push_back(time);
  }
  if (noise != nullptr) noise->add(times);
  return perf::median(times);
}

}  // namespace tutti::tools
