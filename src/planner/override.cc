#include "planner/override.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "algorithms/algorithm.h"
#include "base/check.h"
#include "base/nearest.h"
#include "planner/tuning_table.h"

namespace tutti::planner {
namespace {

// A number: whether it forbids, lanes, a name.
constexpr std::uint16_t kForbids = 0x8000;
constexpr int kLanesFrom = 9;
constexpr std::uint16_t kNames = (1U << kLanesFrom) - 1;
static_assert((kMostOverrideLanes << kLanesFrom | kNames | kForbids) == 0xFFFF);
constexpr std::uint16_t kEagerNumber = 1;  // Algorithms count on, in the order of the registry.

bool has(std::optional<Collective> collective, std::string_view name) {
  if (name == kEagerName || name == kMulticastName) return true;
  if (name == kCopyEnginesName) return !collective || has_copy_engines(*collective);
  return std::ranges::any_of(algorithms(), [&](const Algorithm* algorithm) {
    return algorithm->name == name && (!collective || algorithm->collective == *collective);
  });
}

std::vector<std::string_view> names_of(std::optional<Collective> collective) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (collective && algorithm->collective != *collective) continue;
    if (std::ranges::find(names, algorithm->name) == names.end()) names.push_back(algorithm->name);
  }
  names.insert(names.end(), {kEagerName, kMulticastName});
  if (!collective || has_copy_engines(*collective)) names.push_back(kCopyEnginesName);
  return names;
}

/// A name that no collective has, or not `only` one. The algorithms of the one that is `called` are
/// listed.
Error unknown(std::string_view who, std::string_view name, std::optional<Collective> only,
              Collective called) {
  const Collective collective = only.value_or(called);
  const std::string_view what = to_string(collective);
  std::string text = name == kCopyEnginesName
                         ? fmt::format("copy engines do all_gather and all_to_all, not {}", what)
                         : unknown_word(only ? fmt::format("{} algorithm", what) : "algorithm",
                                        name, names_of(only));
  if (name.find(':') != std::string_view::npos) {
    text +=
        fmt::format("; lanes are repeated by NAME:1 to NAME:{}, but not those of {}, {} or ^NAME",
                    kMostOverrideLanes, kEagerName, kMulticastName);
  }
  const std::string list =
      fmt::format("the algorithms of {} are {}", what, fmt::join(names_of(collective), ", "));
  return {Code::kInvalidArgument, fmt::format("{}: {}", who, followed_by(text, list))};
}

/// Takes ":2" off a name, and returns the 2; 0: there is none. Any other suffix stays, and is
/// a name that nothing has.
std::uint32_t take_lanes(std::string_view& name) {
  const auto colon = name.find(':');
  if (colon == std::string_view::npos) return 0;
  const char* const end = name.data() + name.size();
  std::uint32_t lanes = 0;
  const auto [read_to, failure] = std::from_chars(name.data() + colon + 1, end, lanes);
  const bool good = failure == std::errc{} && read_to == end && lanes >= 1 &&
                    lanes <= kMostOverrideLanes && name.substr(0, colon) != kEagerName &&
                    name.substr(0, colon) != kMulticastName &&
                    name.substr(0, colon) != kCopyEnginesName;
  if (!good) return 0;
  name = name.substr(0, colon);
  return lanes;
}

}  // namespace

bool Override::forbids(std::string_view name) const {
  return std::ranges::find(forbidden, name) != forbidden.end();
}

Result<Override> override_for(Collective collective, std::string_view list, std::string_view who) {
  Override algorithm_override, for_all;
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    std::optional<Collective> only;
    if (const auto equals = entry.find('='); equals != std::string_view::npos) {
      only = parse_collective(entry.substr(0, equals));
      if (!only) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: {}", who, unknown_collective(entry.substr(0, equals)))};
      }
      entry.remove_prefix(equals + 1);
    }
    const bool forbidden = entry.starts_with('^');
    if (forbidden) entry.remove_prefix(1);
    const std::uint32_t lanes = forbidden ? 0 : take_lanes(entry);
    if (!has(only, entry)) return unknown(who, entry, only, collective);
    if ((only && *only != collective) || !has(collective, entry)) continue;
    if (forbidden) {
      algorithm_override.forbidden.emplace_back(entry);
    } else {
      Override& whose = only ? algorithm_override : for_all;
      whose.forced = entry;
      whose.lanes = lanes;
    }
  }
  if (algorithm_override.forced.empty()) {
    algorithm_override.forced = for_all.forced;
    algorithm_override.lanes = for_all.lanes;
  }
  return algorithm_override;
}

Result<std::uint16_t> override_number(Collective collective, std::string_view algorithm_override) {
  if (algorithm_override.empty()) return std::uint16_t{0};
  const bool forbids = algorithm_override.starts_with('^');
  std::string_view name = forbids ? algorithm_override.substr(1) : algorithm_override;
  const std::uint32_t lanes = forbids ? 0 : take_lanes(name);
  const auto flag = static_cast<std::uint16_t>((forbids ? kForbids : 0U) | (lanes << kLanesFrom));
  // Only calls of devices go over multicast memory, and these name no algorithm for one call.
  if (name == kEagerName || name == kMulticastName)
    return static_cast<std::uint16_t>(name == kEagerName ? kEagerNumber | flag : 0);
  const auto all = algorithms();
  TUTTI_CHECK(all.size() + kEagerNumber <= kNames);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->collective == collective && all[i]->name == name)
      return static_cast<std::uint16_t>((i + 1 + kEagerNumber) | flag);
  }
  return unknown("algorithm", name, collective, collective);
}

std::string override_text(std::uint16_t number) {
  if (number == 0) return {};
  const std::string flag = (number & kForbids) != 0 ? "^" : "";
  const std::size_t which = number & kNames;
  const unsigned lanes = (number & ~kForbids) >> kLanesFrom;
  const auto all = algorithms();
  if (which <= kEagerNumber || which > all.size() + kEagerNumber)
    return flag + std::string(kEagerName);
  const std::string_view name = all[which - 1 - kEagerNumber]->name;
  return lanes == 0 ? fmt::format("{}{}", flag, name) : fmt::format("{}{}:{}", flag, name, lanes);
}

}  // namespace tutti::planner
