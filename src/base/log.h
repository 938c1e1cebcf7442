// File: base/log.h: what the library tells people, as lines on stderr. Never on the data path.
//
//   14:02:11.250 node1:4711 rank 3 tutti/net warning: tcp: not listening at ...
//
// One logger per process, one line per event. It starts at the levels of TUTTI_LOG ("warn" without
// it) and is never destroyed, so background threads may log until the process is gone. Any thread.
// A drop-in for another library may give the lines that library's form and place (`write_as`).
#pragma once
#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/types.h"

namespace tutti::log {

// The numbers are spdlog's, which has one more level.
enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff = 6 };

/// The part of the library that says something: a word in the line, with a level of its own.
enum class Part : std::uint8_t { kSettings, kJoin, kNet, kCalls, kPlans, kDevices, kNccl };
inline constexpr std::array<std::string_view, 7> kParts{"settings", "join",    "net", "calls",
                                                        "plans",    "devices", "nccl"};

/// By Part.
using Levels = std::array<Level, kParts.size()>;

/// "warn", "info,net=debug": a level for all parts, others for some; empty if it is none.
std::optional<Levels> parse_levels(std::string_view text);
constexpr Levels all_at(Level level) {
  Levels levels{};
  levels.fill(level);
  return levels;
}
void set_levels(const Levels& levels);

/// The rank of this process, which its lines then show. The first one stays; -1 for a process that
/// has several.
void set_rank(int rank);

bool enabled(Part part, Level level);
/// Writes one line, whatever the level is; line breaks in it become spaces.
void write(Part part, Level level, std::string_view line);
/// From now on lines go to `file`, which stays open, each behind what `head` returns for its level.
/// Any thread may call `head`, which must not log.
void write_as(std::FILE* file, std::string (*head)(Level));

#define TUTTI_LOG_FUNCTION(name, level)                                                           \
  template <class... Args>                                                                        \
  void name(Part part, fmt::format_string<Args...> text, Args&&... args) {                        \
    if (enabled(part, level)) write(part, level, fmt::format(text, std::forward<Args>(args)...)); \
  }
TUTTI_LOG_FUNCTION(debug, Level::kDebug)
TUTTI_LOG_FUNCTION(info, Level::kInfo)
TUTTI_LOG_FUNCTION(warn, Level::kWarn)
TUTTI_LOG_FUNCTION(error, Level::kError)
#undef TUTTI_LOG_FUNCTION

}  // namespace tutti::log
