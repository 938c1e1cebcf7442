// File: comm/meet.h: the first that the ranks of a communicator tell each other: whether they can
// work together, where they are, and what rank 0 has to tell all.
#pragma once
#include <memory>
#include <vector>

#include "comm/state.h"
#include "comm/topology.h"
#include "comm/tuning.h"

namespace tutti {

/// What ranks know of each other once they have met.
struct Met {
  std::vector<Peer> peers;             // By rank.
  std::vector<std::uint64_t> origins;  // By rank, Communicator::State::origin.
  TopologySource topology = TopologySource::kNone;
  std::uint64_t serial = 0;  // Rank 0's process has begun so many communicators, with this one.
};

/// `tuning` becomes what rank 0 found, if it says anything; `plans`: a hash of those that users
/// wrote. kMismatch, with the rank to blame, where versions, rank counts or settings differ.
/// Collective.
Result<Met> meet(const CommunicatorConfig& comm_config, std::uint64_t plans,
                 const Exchange& exchange, std::shared_ptr<const Tuning>& tuning);

}  // namespace tutti
