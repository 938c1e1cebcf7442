// File: comm/shrink.h: how the ranks that are left get a communicator, for those of host memory and
// of devices.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/state.h"

namespace tutti {

/// Which ranks have got a communicator.
struct ShrunkRanks {
  std::vector<Rank> members;    // By rank in it, the rank before.
  std::uint64_t completed = 0;  // As Shrunk::completed.
};

/// Takes the insides that an attempt has made, and makes of them what ranks get. It replaces what
/// it took before, as does an attempt that comes later. If it fails on a rank because of a peer,
/// ranks try once more without those that are lost; else all get the error.
using TakeShrunk = std::function<Status(std::unique_ptr<Communicator::State>)>;

/// As Communicator::shrink. `options`: number, excluded ranks and stop count. `completed` says how
/// many calls this rank has completed, once none is under way. Collective.
Result<ShrunkRanks> shrink(Communicator::State& whole, Recovery::Options options,
                           const std::function<std::uint64_t()>& completed, const TakeShrunk& take);

/// Why this thread can't recover now: it has a group open, or is the progress thread.
Status may_recover(const Communicator::State& state, std::string_view function);

}  // namespace tutti
