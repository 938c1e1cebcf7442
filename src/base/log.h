// File: base/log.h: what the library tells people, as lines on stderr. Never on the data path.
//
// One logger per process. It starts at the level of TUTTI_LOG ("warn" without it) and is never
// destroyed, so background threads may log until the process is gone. Any thread. A drop-in for
// another library may give the lines that library's form and place (`write_as`).
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/types.h"

namespace tutti::log {

// The numbers are spdlog's, which has one more level.
enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff = 6 };

/// The level of that name ("trace" … "off"), or empty.
std::optional<Level> parse_level(std::string_view text);

void set_level(Level level);

bool enabled(Level level);
/// Writes one line, whatever the level is.
void write(Level level, std::string_view line);
/// From now on lines go to `file`, which stays open, each behind what `head` returns for its level.
/// Any thread may call `head`, which must not log.
void write_as(std::FILE* file, std::string (*head)(Level));

#define TUTTI_LOG_FUNCTION(name, level)                                               \
  template <class... Args>                                                            \
  void name(fmt::format_string<Args...> text, Args&&... args) {                       \
    if (enabled(level)) write(level, fmt::format(text, std::forward<Args>(args)...)); \
  }
TUTTI_LOG_FUNCTION(debug, Level::kDebug)
TUTTI_LOG_FUNCTION(info, Level::kInfo)
TUTTI_LOG_FUNCTION(warn, Level::kWarn)
TUTTI_LOG_FUNCTION(error, Level::kError)
#undef TUTTI_LOG_FUNCTION

}  // namespace tutti::log
