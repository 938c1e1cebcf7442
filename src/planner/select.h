// File: planner/select.h: all ways that a call can go, best first, and why not the others.
//
// Pure: the same request and knowledge give the same list on every rank. Who speaks, in this order:
//
//   the user    a forced way is the only one; a forbidden one is refused (wish.h)
//   a table     the ways that were measured on this machine, by their times
//   the rules   built_in_ranges (tuning_table.h), for up to kBuiltInRanks ranks
//   estimates   plan/estimate/estimate.h over what a hop and a byte cost here
//
// What one of them has a say in stands before all that only those below know of. So a table that
// measured three ways puts these three first, and the others follow by estimate.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/estimate/recording.h"
#include "planner/planner.h"
#include "planner/tuning_table.h"

namespace tutti::planner {

/// What puts a candidate where it is in the list.
enum class Evidence : std::uint8_t { kForced, kTuned, kRule, kEstimated };
std::string_view to_string(Evidence evidence);

struct Candidate {
  const Algorithm* algorithm = nullptr;  // Null: packets.
  bool packet = false;
  std::uint32_t lanes = 1;  // How often its lanes are repeated.
  double microseconds =
      0;  // Measured if it is tuned, else estimated; 0: refused, or not estimated.
  Evidence evidence = Evidence::kEstimated;
  std::string refused;  // Why it can't be taken, one line; empty: it can.
  /// "packet", or the algorithm's.
  std::string_view name() const;
};

/// All ways of the request's collective, best first, refused ones last, in the order of the
/// registry. kInvalidArgument if the wishes name what there is not.
Result<std::vector<Candidate>> candidates(const Request& request, const Knowledge& knowledge);

/// The plans that are worth trying, best first: one, if that is known to be best, or blocks differ
/// in size; up to kMostTried, if it is an estimate. Never empty; choose() takes the first. Errors
/// as choose().
Result<std::vector<Candidate>> contenders(const Request& request, const Knowledge& knowledge);
inline constexpr std::size_t kMostTried = 4;

/// How long a plan of the algorithm would take. Bounded: a plan of more than kMostEstimated steps
/// in all is not simulated, and has no value. Remembered for the process. Any thread.
std::optional<double> estimate_us(const Algorithm& algorithm, const Request& request,
                                  const Knowledge& knowledge);
inline constexpr std::size_t kMostEstimated = std::size_t{1} << 17;

/// The same, with what happens when; not remembered.
std::optional<double> record_us(const Algorithm& algorithm, const Request& request,
                                const Knowledge& knowledge, plan::Recording& recording);

/// The same for packets, whatever their size.
double estimate_packet_us(const Request& request, const Knowledge& knowledge);

}  // namespace tutti::planner
