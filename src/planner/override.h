// File: planner/override.h: what a user wants or forbids: TUTTI_ALGORITHM, and the same for one
// call.
//
// A list of names, separated by commas. "ring": this one, for every collective that has it.
// "all_reduce=ring": for one collective. With ^ before the name it is never taken: "^ring",
// "all_reduce=^packet". The way by packets is called "packet", that over multicast memory "nvls";
// that by the copy engines of devices "copy_engines", which all-gather and all-to-all have.
// "ring:2" is ring with its lanes repeated twice; of a name alone the planner says how often they
// are.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::planner {

/// A list's entry for one collective.
struct Override {
  std::string forced;                  // Empty: none.
  std::uint32_t lanes = 0;             // For the forced one; 0: the planner says.
  std::vector<std::string> forbidden;  // Names.
  bool forbids(std::string_view name) const;
  /// Whether a candidate of that name may be taken: the forced one, or any that is not forbidden.
  bool allows(std::string_view name) const {
    return forced.empty() ? !forbids(name) : forced == name;
  }
};

/// Reads a list. An entry for the collective alone wins over one for all; of several alike the
/// last. `who` begins an error: "TUTTI_ALGORITHM". kInvalidArgument for a name that nothing has,
/// with the names that there are.
Result<Override> override_for(Collective collective, std::string_view list, std::string_view who);

/// The override for one call, "ring", "ring:2" or "^ring", as a number that ranks compare and calls
/// carry; 0: none. kInvalidArgument for a name that the collective has not.
Result<std::uint16_t> override_number(Collective collective, std::string_view algorithm_override);
/// The reverse.
std::string override_text(std::uint16_t number);
/// How often lanes can be repeated by a override.
inline constexpr std::uint32_t kMostOverrideLanes = 63;

}  // namespace tutti::planner
