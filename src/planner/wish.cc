#include "planner/wish.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "algorithms/algorithm.h"
#include "base/check.h"
#include "planner/tuning_table.h"

namespace tutti::planner {
namespace {

// A number: whether it forbids, lanes, a name.
constexpr std::uint16_t kForbids = 0x8000;
constexpr int kLanesFrom = 9;
constexpr std::uint16_t kNames = (1U << kLanesFrom) - 1;
static_assert((kMostWishedLanes << kLanesFrom | kNames | kForbids) == 0xFFFF);
constexpr std::uint16_t kPacketNumber = 1;  // Algorithms count on, in the order of the registry.

bool has(std::optional<Collective> collective, std::string_view name) {
  if (name == kPacketWay) return true;
  const auto all = algorithms();
  return std::any_of(all.begin(), all.end(), [&](const Algorithm* algorithm) {
    return algorithm->name == name && (!collective || algorithm->collective == *collective);
  });
}

Error unknown(std::string_view who, std::string_view name, std::optional<Collective> collective) {
  std::string known;
  for (const Algorithm* algorithm : algorithms()) {
    if (collective && algorithm->collective != *collective) continue;
    if (known.find(fmt::format(" {},", algorithm->name)) == std::string::npos)
      known += fmt::format(" {},", algorithm->name);
  }
  std::string text =
      fmt::format("{}: no {} algorithm is called '{}'; there are{} {}", who,
                  collective ? to_string(*collective) : std::string_view("registered"), name, known,
                  kPacketWay);
  if (name.find(':') != std::string_view::npos) {
    text += fmt::format("; lanes are repeated by NAME:1 to NAME:{}, but not those of {} or ^NAME",
                        kMostWishedLanes, kPacketWay);
  }
  return {Code::kInvalidArgument, std::move(text)};
}

/// Takes ":2" off a name, and returns the 2; 0: there is none. What is no such number stays, and is
/// a name that nothing has.
std::uint32_t take_lanes(std::string_view& name) {
  const auto colon = name.find(':');
  if (colon == std::string_view::npos) return 0;
  const char* const end = name.data() + name.size();
  std::uint32_t lanes = 0;
  const auto [read_to, failure] = std::from_chars(name.data() + colon + 1, end, lanes);
  const bool good = failure == std::errc{} && read_to == end && lanes >= 1 &&
                    lanes <= kMostWishedLanes && name.substr(0, colon) != kPacketWay;
  if (!good) return 0;
  name = name.substr(0, colon);
  return lanes;
}

}  // namespace

bool Wish::forbids(std::string_view name) const {
  return std::find(forbidden.begin(), forbidden.end(), name) != forbidden.end();
}

Result<Wish> wish_for(Collective collective, std::string_view list, std::string_view who) {
  Wish wish;
  Wish for_all;
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    std::optional<Collective> only;
    if (const auto equals = entry.find('='); equals != std::string_view::npos) {
      only = parse_collective(entry.substr(0, equals));
      if (!only) {
        return Error{Code::kInvalidArgument,
                     fmt::format("{}: '{}' is no collective; there are {}", who,
                                 entry.substr(0, equals), collective_names())};
      }
      entry.remove_prefix(equals + 1);
    }
    const bool forbidden = entry.starts_with('^');
    if (forbidden) entry.remove_prefix(1);
    const std::uint32_t lanes = forbidden ? 0 : take_lanes(entry);
    if (!has(only, entry)) return unknown(who, entry, only);
    if ((only && *only != collective) || !has(collective, entry)) continue;
    if (forbidden) {
      wish.forbidden.emplace_back(entry);
    } else {
      Wish& whose = only ? wish : for_all;
      whose.forced = entry;
      whose.lanes = lanes;
    }
  }
  if (wish.forced.empty()) {
    wish.forced = for_all.forced;
    wish.lanes = for_all.lanes;
  }
  return wish;
}

Result<std::uint16_t> wish_number(Collective collective, std::string_view wish) {
  if (wish.empty()) return std::uint16_t{0};
  const bool forbids = wish.starts_with('^');
  std::string_view name = forbids ? wish.substr(1) : wish;
  const std::uint32_t lanes = forbids ? 0 : take_lanes(name);
  const auto flag = static_cast<std::uint16_t>((forbids ? kForbids : 0U) | (lanes << kLanesFrom));
  if (name == kPacketWay) return static_cast<std::uint16_t>(kPacketNumber | flag);
  const auto all = algorithms();
  TUTTI_CHECK(all.size() + kPacketNumber <= kNames);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->collective == collective && all[i]->name == name)
      return static_cast<std::uint16_t>((i + 1 + kPacketNumber) | flag);
  }
  return unknown("algorithm", name, collective);
}

std::string wish_text(std::uint16_t number) {
  if (number == 0) return {};
  const std::string flag = (number & kForbids) != 0 ? "^" : "";
  const std::size_t which = number & kNames;
  const unsigned lanes = (number & ~kForbids) >> kLanesFrom;
  const auto all = algorithms();
  if (which <= kPacketNumber || which > all.size() + kPacketNumber)
    return flag + std::string(kPacketWay);
  const std::string_view name = all[which - 1 - kPacketNumber]->name;
  return lanes == 0 ? fmt::format("{}{}", flag, name) : fmt::format("{}{}:{}", flag, name, lanes);
}

}  // namespace tutti::planner
