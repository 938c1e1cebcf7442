#include "base/log.h"

#include <spdlog/details/console_globals.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "base/fork.h"

namespace tutti::log {
namespace {

constexpr std::pair<std::string_view, Level> kLevels[] = {
    {"trace", Level::kTrace}, {"debug", Level::kDebug}, {"info", Level::kInfo},
    {"warn", Level::kWarn},   {"error", Level::kError}, {"off", Level::kOff}};

spdlog::level::level_enum to_spdlog(Level level) {
  static_assert(static_cast<int>(Level::kError) == spdlog::level::err &&
                static_cast<int>(Level::kOff) == spdlog::level::off);
  return static_cast<spdlog::level::level_enum>(level);
}

spdlog::logger& logger() {
  // Leaked on purpose: see the head of log.h.
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    const char* named = std::getenv("TUTTI_LOG");
    const auto level = named != nullptr ? parse_level(named) : std::nullopt;
    made->set_level(to_spdlog(level.value_or(Level::kWarn)));
    made->set_pattern("[%H:%M:%S.%e tutti %l] %v");
    return made;
  }();
  return *instance;
}

const HeldAcrossFork console_held(ForkOrder::kLog, []() -> std::mutex& {
  return spdlog::details::console_mutex::mutex();
});

}  // namespace

std::optional<Level> parse_level(std::string_view text) {
  for (const auto& [name, level] : kLevels) {
    if (name == text) return level;
  }
  return std::nullopt;
}

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }
void write(Level level, std::string_view line) { logger().log(to_spdlog(level), line); }

}  // namespace tutti::log
