// File: soak/ranks.h: what a rank of a round does, in its own process.
#pragma once
#include <string>

#include "soak/board.h"
#include "soak/round.h"
#include "tutti/communicator.h"

namespace tutti::soak {

/// Joins at `meeting`, makes calls until one fails or the round finishes, and says so on the board.
/// Ends the process: 0 unless the rank could not join.
[[noreturn]] void be_rank(const RoundOptions& options, const trainer::Split& data, Board& board,
                          const std::string& meeting, int rank);

/// Mixed calls for so long, until the same step on all ranks, with its own line on success; else
/// what went wrong.
std::string run_member(Communicator& comm, std::uint64_t seed, double seconds);

}  // namespace tutti::soak
