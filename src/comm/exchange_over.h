// File: comm/exchange_over.h: what set-up goes by; and set-up over a communicator that is there
// already.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/communicator.h"
#include "tutti/rendezvous.h"

namespace tutti {

/// That rank, or none if it is not one of so many: over a network it may be any number.
constexpr Rank known_rank(Rank rank, int ranks) {
  return rank.value >= 0 && rank.value < ranks ? rank : Rank{};
}

/// The all-gather of set-up, over whatever joins the ranks so far.
using Exchange = std::function<Result<std::vector<Bytes>>(std::string_view phase,
                                                          std::span<const std::byte> mine)>;

/// One rank's part: bytes, or the error that ended its set-up, or neither if it is done.
struct SetUp {
  std::optional<Bytes> bytes;
  std::optional<Error> error;
};

/// All-gathers contributions that may differ in size; the result is by rank. A contribution above 1
/// MiB is an error on all ranks. Collective.
Result<std::vector<SetUp>> exchange_over(Communicator& control, std::span<const std::byte> mine);
/// For a rank that is done or whose set-up failed: takes part while others still exchange.
Result<std::vector<SetUp>> end_exchange_over(Communicator& control, const Error* error);

/// The same as what set-up goes by, where every rank gives something. `control` has to outlive it.
Exchange exchange_over(Communicator& control);

}  // namespace tutti
